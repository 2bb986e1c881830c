import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One request on stdin, one answer on stdout: tests/clients/program.py says which.
 *
 * Janino compiles it in memory, for several versions of kafka-clients; it has no lambdas.
 */
public class Program {
    private static final long PATIENCE_MS = 120000;
    private static final Duration A_MOMENT = Duration.ofMillis(200);
    private static final ObjectMapper JSON = new ObjectMapper();
    private final long deadline = System.currentTimeMillis() + PATIENCE_MS;
    private final ObjectNode request;
    private final String topic;
    private final KafkaConsumer consumer;

    public static void main(String[] arguments) throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        try {
            ObjectNode request = (ObjectNode) JSON.readTree(System.in);
            Program program = new Program(request);
            try {
                String action = request.get("action").asText();
                if (action.equals("read")) answer.set("partitions", program.read());
                else if (action.equals("lookup")) answer.set("offsets", program.lookup());
                else if (action.equals("group")) answer.set("partitions", program.group());
                else answer.set("topics", program.topics());
            } finally {
                program.consumer.close();
            }
        } catch (Exception error) {
            answer.put("error", error.toString());
        }
        System.out.println(JSON.writeValueAsString(answer));
    }

    private Program(ObjectNode request) throws Exception {
        this.request = request;
        topic = request.path("topic").asText();
        Map settings = security(request.get("security"));
        settings.put("bootstrap.servers", request.get("servers").asText());
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.api.timeout.ms", String.valueOf(PATIENCE_MS));
        if (request.path("committed").asBoolean())
            settings.put("isolation.level", "read_committed");
        if (request.has("group")) settings.put("group.id", request.get("group").asText());
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        consumer = new KafkaConsumer(settings, bytes, bytes);
    }

    private static Map security(JsonNode wanted) {
        Map settings = new HashMap();
        boolean tls = wanted.hasNonNull("ca"), sasl = wanted.hasNonNull("mechanism");
        settings.put("security.protocol", (sasl ? "SASL_" : "") + (tls ? "SSL" : "PLAINTEXT"));
        if (tls) {
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", wanted.get("ca").asText());
        }
        if (sasl) {
            String mechanism = wanted.get("mechanism").asText();
            settings.put("sasl.mechanism", mechanism);
            settings.put("sasl.jaas.config", "org.apache.kafka.common.security."
                + (mechanism.equals("PLAIN") ? "plain.Plain" : "scram.Scram")
                + "LoginModule required username=\"" + wanted.get("user").asText()
                + "\" password=\"" + wanted.get("password").asText() + "\";");
        }
        return settings;
    }

    private ObjectNode read() throws Exception {
        Map ends = new TreeMap(), counts = new HashMap(), digests = new HashMap();
        for (Iterator names = request.get("ends").fieldNames(); names.hasNext();) {
            String name = (String) names.next();
            Integer partition = Integer.valueOf(name);
            ends.put(partition, Long.valueOf(request.get("ends").get(name).asLong()));
            counts.put(partition, Integer.valueOf(0));
            digests.put(partition, MessageDigest.getInstance("SHA-256"));
        }
        List assigned = new ArrayList();
        for (Object partition : ends.keySet()) assigned.add(at(partition));
        consumer.assign(assigned);
        consumer.seekToBeginning(assigned);
        while (!reached(ends)) {
            for (Object each : poll()) {
                ConsumerRecord record = (ConsumerRecord) each;
                Integer partition = Integer.valueOf(record.partition());
                ((MessageDigest) digests.get(partition)).update(encoded(record));
                int count = ((Integer) counts.get(partition)).intValue();
                counts.put(partition, Integer.valueOf(count + 1));
            }
        }
        ObjectNode found = JSON.createObjectNode();
        for (Object partition : ends.keySet()) {
            byte[] digest = ((MessageDigest) digests.get(partition)).digest();
            found.putArray(partition.toString())
                .add(((Integer) counts.get(partition)).intValue()).add(hexadecimal(digest));
        }
        return found;
    }

    private boolean reached(Map ends) {
        for (Object partition : ends.keySet())
            if (consumer.position(at(partition)) < ((Long) ends.get(partition)).longValue())
                return false;
        return true;
    }

    private ArrayNode lookup() {
        ArrayNode offsets = JSON.createArrayNode();
        for (Object each : request.get("asked")) {
            ArrayNode asked = (ArrayNode) each;
            TopicPartition partition = new TopicPartition(topic, asked.get(0).asInt());
            Map wanted = Collections.singletonMap(partition, Long.valueOf(asked.get(1).asLong()));
            Object found = consumer.offsetsForTimes(wanted).get(partition);
            offsets.add(found == null ? -1L : ((OffsetAndTimestamp) found).offset());
        }
        return offsets;
    }

    private ObjectNode group() throws Exception {
        ObjectNode read = JSON.createObjectNode();
        int left = request.get("stop_after").asInt();
        consumer.subscribe(Collections.singleton(topic));
        while (left > 0) {
            List some = poll();
            some = some.subList(0, Math.min(left, some.size()));
            if (!committed(some)) continue; // others have these partitions now
            for (Object record : some) count(read, (ConsumerRecord) record);
            left -= some.size();
        }
        return read;
    }

    private boolean committed(List records) {
        Map positions = new HashMap();
        for (Object each : records) {
            ConsumerRecord record = (ConsumerRecord) each;
            positions.put(new TopicPartition(topic, record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
        }
        try {
            consumer.commitSync(positions);
            return true;
        } catch (CommitFailedException rebalanced) {
            return false;
        } catch (RebalanceInProgressException rebalanced) {
            return false;
        }
    }

    private static void count(ObjectNode read, ConsumerRecord record) {
        String partition = String.valueOf(record.partition());
        ArrayNode before = (ArrayNode) read.get(partition);
        int records = before == null ? 0 : before.get(0).asInt();
        long first = before == null ? record.offset() : before.get(1).asLong();
        read.putArray(partition).add(records + 1).add(first).add(record.offset());
    }

    private ObjectNode topics() {
        ObjectNode found = JSON.createObjectNode();
        Map known = consumer.listTopics();
        for (Object name : known.keySet())
            found.put((String) name, ((List) known.get(name)).size());
        return found;
    }

    private TopicPartition at(Object partition) {
        return new TopicPartition(topic, ((Integer) partition).intValue());
    }

    private List poll() throws TimeoutException {
        if (System.currentTimeMillis() > deadline)
            throw new TimeoutException("no answer in " + PATIENCE_MS + " ms");
        List records = new ArrayList();
        for (Object record : consumer.poll(A_MOMENT)) records.add(record);
        return records;
    }

    private static byte[] encoded(ConsumerRecord record) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeLong(record.offset());
        out.writeLong(record.timestamp());
        write(out, (byte[]) record.key());
        write(out, (byte[]) record.value());
        Header[] headers = record.headers().toArray();
        out.writeInt(headers.length);
        for (Header header : headers) {
            write(out, header.key().getBytes(StandardCharsets.UTF_8));
            write(out, header.value());
        }
        return bytes.toByteArray();
    }

    private static void write(DataOutputStream out, byte[] data) throws Exception {
        out.writeInt(data == null ? -1 : data.length);
        if (data != null) out.write(data);
    }

    private static String hexadecimal(byte[] digest) {
        StringBuilder text = new StringBuilder();
        for (byte each : digest)
            text.append(String.format("%02x", new Object[] {Byte.valueOf(each)}));
        return text.toString();
    }
}
