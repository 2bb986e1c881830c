import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.StringWriter;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer that writes to topics, in transactions and without, and what a consumer then reads.
 *
 * Compiled in memory by Janino, like Judge.java, so without generics.
 */
public class Producing implements Runnable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private Map settings = new HashMap();
    private String[] topics;
    private int partitions;
    private Random random;
    private KafkaProducer plain;
    private KafkaProducer transactional;
    private Thread thread;
    private volatile boolean stopping;
    private volatile String failure;
    private volatile long sent;

    public void connect(String server, String names, int partitions, long seed) throws Exception {
        settings.put("bootstrap.servers", server);
        settings.put("retry.backoff.ms", "20");
        settings.put("reconnect.backoff.ms", "20");
        settings.put("linger.ms", "1");
        this.topics = (String[]) JSON.readValue(names, String[].class);
        this.partitions = partitions;
        random = new Random(seed);
        ByteArraySerializer bytes = new ByteArraySerializer();
        Map idempotent = new HashMap(settings);
        idempotent.put("compression.type", "lz4");
        plain = new KafkaProducer(idempotent, bytes, bytes);
        Map transactions = new HashMap(settings);
        transactions.put("transactional.id", "producing-" + seed);
        transactional = new KafkaProducer(transactions, bytes, bytes);
        transactional.initTransactions();
    }

    /** Rounds of a transaction, most of them committed, and some records without one. */
    public long produce(int rounds) throws Exception {
        for (int i = 0; i < rounds; i++) {
            transactional.beginTransaction();
            send(transactional, 1 + random.nextInt(40));
            if (random.nextInt(3) == 0) {
                transactional.flush(); // so that the aborted records are in the log
                transactional.abortTransaction();
            } else {
                transactional.commitTransaction();
            }
            send(plain, random.nextInt(20));
            plain.flush();
        }
        return sent;
    }

    /** Produces until `stop`. */
    public void start() {
        stopping = false;
        thread = new Thread(this);
        thread.setDaemon(true);
        thread.start();
    }

    public void run() {
        try {
            while (!stopping) {
                produce(1);
                Thread.sleep(100);
            }
        } catch (Exception error) {
            failure = error.toString();
        }
    }

    public long stop() throws Exception {
        stopping = true;
        thread.join();
        if (failure != null) throw new IllegalStateException(failure);
        return sent;
    }

    public void open() throws Exception {
        transactional.beginTransaction();
        send(transactional, 10);
        transactional.flush();
    }

    public void commit() { transactional.commitTransaction(); }

    public void close() {
        if (plain != null) plain.close();
        if (transactional != null) transactional.close();
    }

    private void send(KafkaProducer producer, int count) {
        for (int i = 0; i < count; i++) {
            RecordHeaders headers = new RecordHeaders();
            for (int k = random.nextInt(4); k > 0; k--)
                headers.add(random.nextBoolean() ? "trace" : "gr\u00f6\u00dfe",
                    random.nextInt(3) == 0 ? null : bytes(random.nextInt(5)));
            producer.send(new ProducerRecord(topics[random.nextInt(topics.length)],
                Integer.valueOf(random.nextInt(partitions)),
                Long.valueOf(1700000000000L + sent * 3 - random.nextInt(50)),
                random.nextInt(4) == 0 ? null : bytes(random.nextInt(8)),
                random.nextInt(9) == 0 ? null : ("record " + sent).getBytes(), headers));
            sent++;
        }
    }

    private byte[] bytes(int size) {
        byte[] drawn = new byte[size];
        random.nextBytes(drawn);
        return drawn;
    }

    /** [log start, end, records] of a partition for a consumer with this isolation level. */
    public String consumed(String topic, int partition, String isolation) throws Exception {
        Map wanted = new HashMap(settings);
        wanted.put("isolation.level", isolation);
        wanted.put("enable.auto.commit", "false");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        KafkaConsumer consumer = new KafkaConsumer(wanted, bytes, bytes);
        TopicPartition place = new TopicPartition(topic, partition);
        StringWriter text = new StringWriter();
        JsonGenerator json = JSON.getFactory().createGenerator(text);
        try {
            consumer.assign(Collections.singleton(place));
            long start = ((Long) consumer.beginningOffsets(Collections.singleton(place))
                .get(place)).longValue();
            long end = ((Long) consumer.endOffsets(Collections.singleton(place))
                .get(place)).longValue();
            consumer.seek(place, start);
            json.writeStartArray();
            json.writeNumber(start);
            json.writeNumber(end);
            json.writeStartArray();
            while (consumer.position(place) < end) {
                List records = consumer.poll(Duration.ofSeconds(120)).records(place);
                Iterator each = records.iterator();
                while (each.hasNext()) write(json, (ConsumerRecord) each.next());
            }
            json.writeEndArray();
            json.writeEndArray();
        } finally {
            consumer.close();
        }
        json.close();
        return text.toString();
    }

    private static void write(JsonGenerator json, ConsumerRecord record) throws Exception {
        json.writeStartArray();
        json.writeNumber(record.offset());
        json.writeNumber(record.timestamp());
        json.writeNumber(record.timestampType().id);
        writeBytes(json, (byte[]) record.key());
        writeBytes(json, (byte[]) record.value());
        json.writeStartArray();
        Header[] headers = record.headers().toArray();
        for (int i = 0; i < headers.length; i++) {
            json.writeStartArray();
            json.writeString(headers[i].key());
            writeBytes(json, headers[i].value());
            json.writeEndArray();
        }
        json.writeEndArray();
        json.writeEndArray();
    }

    private static void writeBytes(JsonGenerator json, byte[] bytes) throws Exception {
        if (bytes == null) json.writeNull();
        else json.writeBinary(bytes);
    }

    public void deleteRecords(String topic, int partition, long before) throws Exception {
        Admin admin = Admin.create(new HashMap(settings));
        try {
            admin.deleteRecords(Collections.singletonMap(new TopicPartition(topic, partition),
                RecordsToDelete.beforeOffset(before))).all().get();
        } finally {
            admin.close();
        }
    }

    public void createTopic(String topic, int partitions) throws Exception {
        Admin admin = Admin.create(new HashMap(settings));
        try {
            admin.createTopics(Collections.singleton(
                new NewTopic(topic, partitions, (short) 1))).all().get();
        } finally {
            admin.close();
        }
    }

    public void deleteTopic(String topic) throws Exception {
        Admin admin = Admin.create(new HashMap(settings));
        try {
            admin.deleteTopics(Collections.singleton(topic)).all().get();
        } finally {
            admin.close();
        }
    }
}
