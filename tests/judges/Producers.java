import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.StringWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's producers, by name, DeleteRecords, and a consumer that reads only what is committed.
 *
 * Compiled in memory by Janino, like Judge.java, and with the same JSON form of records.
 */
public class Producers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Map producers = new HashMap();

    public void open(String name, String server, String settings) throws Exception {
        Map all = (Map) JSON.readValue(settings, HashMap.class);
        all.put("bootstrap.servers", server);
        KafkaProducer producer =
            new KafkaProducer(all, new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(name, producer);
        if (all.containsKey("transactional.id")) producer.initTransactions();
    }

    public void begin(String name) { of(name).beginTransaction(); }

    public void commit(String name) { of(name).commitTransaction(); }

    public void abort(String name) { of(name).abortTransaction(); }

    public void close(String name) {
        ((KafkaProducer) producers.remove(name)).close(Duration.ZERO);
    }

    /** Sends records and waits for them; returns the offset of the last one. */
    public long send(String name, String topic, int partition, String records) throws Exception {
        KafkaProducer producer = of(name);
        Iterator each = JSON.readTree(records).elements();
        List sent = new ArrayList();
        while (each.hasNext()) {
            JsonNode record = (JsonNode) each.next();
            RecordHeaders headers = new RecordHeaders();
            Iterator pairs = record.required(4).elements();
            while (pairs.hasNext()) {
                JsonNode pair = (JsonNode) pairs.next();
                headers.add(pair.required(0).asText(), bytes(pair.required(1)));
            }
            sent.add(producer.send(new ProducerRecord(topic, Integer.valueOf(partition),
                Long.valueOf(record.required(1).asLong()), bytes(record.required(2)), bytes(record.required(3)),
                headers)));
        }
        producer.flush();
        long last = -1;
        Iterator futures = sent.iterator();
        while (futures.hasNext())
            last = ((RecordMetadata) ((Future) futures.next()).get()).offset();
        return last;
    }

    public void deleteRecords(String server, String topic, int partition, long before)
            throws Exception {
        Admin admin = Admin.create(connection(server));
        try {
            admin.deleteRecords(Collections.singletonMap(new TopicPartition(topic, partition),
                RecordsToDelete.beforeOffset(before))).all().get();
        } finally {
            admin.close();
        }
    }

    /** [start, end, records]: all that a consumer with read_committed gets of a partition. */
    public String committed(String server, String topic, int partition) throws Exception {
        KafkaConsumer consumer = consumer(server);
        try {
            TopicPartition place = new TopicPartition(topic, partition);
            long start = offset(consumer.beginningOffsets(Collections.singleton(place)), place);
            long end = offset(consumer.endOffsets(Collections.singleton(place)), place);
            consumer.assign(Collections.singleton(place));
            consumer.seek(place, start);
            StringWriter text = new StringWriter();
            JsonGenerator json = JSON.getFactory().createGenerator(text);
            json.writeStartArray();
            json.writeNumber(start);
            json.writeNumber(end);
            json.writeStartArray();
            while (consumer.position(place) < end) {
                long before = consumer.position(place);
                List records = consumer.poll(Duration.ofSeconds(120)).records(place);
                Iterator each = records.iterator();
                while (each.hasNext()) writeRecord(json, (ConsumerRecord) each.next());
                if (consumer.position(place) == before)
                    throw new IllegalStateException("nothing of " + place + " at " + before);
            }
            json.writeEndArray();
            json.writeEndArray();
            json.close();
            return text.toString();
        } finally {
            consumer.close();
        }
    }

    /** [offset, timestamp] or null for each time, as a consumer with read_committed is told. */
    public String offsetsForTimes(String server, String topic, int partition, String times)
            throws Exception {
        KafkaConsumer consumer = consumer(server);
        try {
            TopicPartition place = new TopicPartition(topic, partition);
            long[] targets = (long[]) JSON.readValue(times, long[].class);
            StringWriter text = new StringWriter();
            JsonGenerator json = JSON.getFactory().createGenerator(text);
            json.writeStartArray();
            for (int i = 0; i < targets.length; i++) {
                Map wanted = Collections.singletonMap(place, Long.valueOf(targets[i]));
                OffsetAndTimestamp found =
                    (OffsetAndTimestamp) consumer.offsetsForTimes(wanted).get(place);
                if (found == null) json.writeNull();
                else {
                    json.writeStartArray();
                    json.writeNumber(found.offset());
                    json.writeNumber(found.timestamp());
                    json.writeEndArray();
                }
            }
            json.writeEndArray();
            json.close();
            return text.toString();
        } finally {
            consumer.close();
        }
    }

    private KafkaProducer of(String name) { return (KafkaProducer) producers.get(name); }

    private static long offset(Map found, TopicPartition place) {
        return ((Long) found.get(place)).longValue();
    }

    private static Map connection(String server) {
        Map settings = new HashMap();
        settings.put("bootstrap.servers", server);
        settings.put("retry.backoff.ms", "20");
        settings.put("reconnect.backoff.ms", "20");
        return settings;
    }

    private static KafkaConsumer consumer(String server) {
        Map settings = connection(server);
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "20");
        settings.put("max.poll.records", "10000");
        settings.put("auto.offset.reset", "none");
        settings.put("isolation.level", "read_committed");
        return new KafkaConsumer(settings, new ByteArrayDeserializer(),
            new ByteArrayDeserializer());
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
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
}
