import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.io.StringWriter;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's consumer and admin client, and the formatting of a broker's storage, for broker.py.
 *
 * Compiled in memory by Janino, like Judge.java, and with the same JSON form of records.
 */
public class Client {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long PATIENCE_MS = 120000; // on a loaded machine
    private Admin admin;
    private KafkaConsumer consumer;

    public void format(String properties) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        String[] arguments = new String[] {
            "format", "-t", Uuid.randomUuid().toString(), "-c", properties
        };
        if (kafka.tools.StorageTool.execute(arguments, new PrintStream(printed)) != 0)
            throw new IllegalStateException(printed.toString());
    }

    public void connect(String server) {
        Map settings = new HashMap();
        settings.put("bootstrap.servers", server);
        settings.put("retry.backoff.ms", "20");
        settings.put("reconnect.backoff.ms", "20");
        admin = Admin.create(new HashMap(settings));
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "20"); // a new assignment waits for the fetch before it
        settings.put("max.poll.records", "10000");
        settings.put("auto.offset.reset", "none");
        consumer = new KafkaConsumer(settings, new ByteArrayDeserializer(),
            new ByteArrayDeserializer());
    }

    public void close() {
        if (consumer != null) consumer.close();
        if (admin != null) admin.close();
    }

    public void createTopic(String topic, int partitions, String configs) throws Exception {
        NewTopic wanted = new NewTopic(topic, partitions, (short) 1);
        wanted.configs((Map) JSON.readValue(configs, HashMap.class));
        admin.createTopics(Collections.singleton(wanted)).all().get();
        // A broker answers before it leads the new partitions: only clients that try again may
        // send records at once. It lists the offsets of those that it leads.
        Map leads = new HashMap();
        for (int i = 0; i < partitions; i++)
            leads.put(new TopicPartition(topic, i), OffsetSpec.latest());
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        for (boolean led = false; !led; ) {
            try {
                admin.listOffsets(leads).all().get();
                led = true;
            } catch (ExecutionException failed) {
                boolean passes = failed.getCause() instanceof RetriableException;
                if (!passes || System.currentTimeMillis() > deadline) throw failed;
                Thread.sleep(20);
            }
        }
    }

    /** Leave an idempotent producer idle, then begin transactions or send a record. */
    public void produce(String server, String topic, long idleMs, boolean transactions)
            throws Exception {
        Map settings = new HashMap();
        settings.put("bootstrap.servers", server);
        if (transactions) settings.put("transactional.id", "writing");
        KafkaProducer producer = new KafkaProducer(settings, new ByteArraySerializer(),
            new ByteArraySerializer());
        try {
            Thread.sleep(idleMs);
            if (transactions) producer.initTransactions();
            producer.send(new ProducerRecord(topic, new byte[1])).get();
        } finally {
            producer.close();
        }
    }

    /** [[offset, timestamp] or null for each partition and time]. */
    public String offsetsForTimes(String topic, String partitions, String times) throws Exception {
        int[] numbers = (int[]) JSON.readValue(partitions, int[].class);
        long[] targets = (long[]) JSON.readValue(times, long[].class);
        Map wanted = new HashMap();
        for (int i = 0; i < numbers.length; i++)
            wanted.put(new TopicPartition(topic, numbers[i]), Long.valueOf(targets[i]));
        Map found = consumer.offsetsForTimes(wanted);
        StringWriter text = new StringWriter();
        JsonGenerator json = JSON.getFactory().createGenerator(text);
        json.writeStartArray();
        for (int i = 0; i < numbers.length; i++) {
            OffsetAndTimestamp entry =
                (OffsetAndTimestamp) found.get(new TopicPartition(topic, numbers[i]));
            if (entry == null) json.writeNull();
            else writePair(json, entry.offset(), entry.timestamp());
        }
        json.writeEndArray();
        json.close();
        return text.toString();
    }

    public String maxTimestamp(String topic, int partition) throws Exception {
        TopicPartition place = new TopicPartition(topic, partition);
        Map wanted = Collections.singletonMap(place, OffsetSpec.maxTimestamp());
        ListOffsetsResult.ListOffsetsResultInfo found = (ListOffsetsResult.ListOffsetsResultInfo)
            admin.listOffsets(wanted).partitionResult(place).get();
        StringWriter text = new StringWriter();
        JsonGenerator json = JSON.getFactory().createGenerator(text);
        writePair(json, found.offset(), found.timestamp());
        json.close();
        return text.toString();
    }

    public long beginningOffset(String topic, int partition) {
        TopicPartition place = new TopicPartition(topic, partition);
        Map found = consumer.beginningOffsets(Collections.singleton(place));
        return ((Long) found.get(place)).longValue();
    }

    public long endOffset(String topic, int partition) {
        TopicPartition place = new TopicPartition(topic, partition);
        Map found = consumer.endOffsets(Collections.singleton(place));
        return ((Long) found.get(place)).longValue();
    }

    /** Records from `start` on, until the position reaches `end`. */
    public String consume(String topic, int partition, long start, long end) throws Exception {
        TopicPartition place = assign(topic, partition, start);
        StringWriter text = new StringWriter();
        JsonGenerator json = JSON.getFactory().createGenerator(text);
        json.writeStartArray();
        while (consumer.position(place) < end) {
            long before = consumer.position(place);
            writeRecords(json, consumer.poll(Duration.ofMillis(PATIENCE_MS)).records(place));
            if (consumer.position(place) == before)
                throw new IllegalStateException("no record of " + place + " at " + before);
        }
        json.writeEndArray();
        json.close();
        return text.toString();
    }

    /** What the first poll with records yields; none if the position comes to the end before. */
    public String poll(String topic, int partition, long start) throws Exception {
        long end = endOffset(topic, partition);
        TopicPartition place = assign(topic, partition, start);
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        List records = Collections.EMPTY_LIST;
        boolean underWay = true;
        while (underWay && System.currentTimeMillis() < deadline) {
            records = consumer.poll(Duration.ofMillis(100)).records(place);
            boolean outside = start > end; // the broker will say so
            underWay = records.isEmpty() && (outside || consumer.position(place) < end);
        }
        StringWriter text = new StringWriter();
        JsonGenerator json = JSON.getFactory().createGenerator(text);
        json.writeStartArray();
        writeRecords(json, records);
        json.writeEndArray();
        json.close();
        return text.toString();
    }

    private TopicPartition assign(String topic, int partition, long start) {
        TopicPartition place = new TopicPartition(topic, partition);
        consumer.assign(Collections.singleton(place));
        consumer.seek(place, start);
        return place;
    }

    private static void writeRecords(JsonGenerator json, List records) throws Exception {
        Iterator each = records.iterator();
        while (each.hasNext()) writeRecord(json, (ConsumerRecord) each.next());
    }

    private static void writeRecord(JsonGenerator json, ConsumerRecord record) throws Exception {
        json.writeStartArray();
        json.writeNumber(record.offset());
        json.writeNumber(record.timestamp());
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

    private static void writePair(JsonGenerator json, long first, long second) throws Exception {
        json.writeStartArray();
        json.writeNumber(first);
        json.writeNumber(second);
        json.writeEndArray();
    }
}
