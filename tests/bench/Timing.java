import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;

/**
 * Kafka's storage classes and consumer, timed where they run: loops inside the JVM, no call per item.
 *
 * Compiled in memory by Janino, like Judge.java. Times are in nanoseconds.
 */
public class Timing {
    private static final ObjectMapper JSON = new ObjectMapper();
    private LogSegment segment;
    private KafkaConsumer consumer;
    private List partitions;
    private long count;
    private Object[] answers; // of the last loop of lookups, as Kafka gave them
    private List received = new ArrayList(); // of the last window: lists of ConsumerRecord

    public void openSegment(String folder, long baseOffset) throws Exception {
        segment = LogSegment.open(new File(folder), baseOffset, new LogConfig(new HashMap()),
            Time.SYSTEM, true, 0, false, "");
    }

    /** Without LogSegment.close, which would append to the time index. */
    public void closeSegment() throws Exception {
        segment.offsetIndex().closeHandler();
        segment.timeIndex().closeHandler();
        segment.log().closeHandlers();
    }

    /** LogSegment.findOffsetByTimestamp for each time; the time it took in all. */
    public long findByTimestamp(String times) throws Exception {
        long[] targets = (long[]) JSON.readValue(times, long[].class);
        answers = new Object[targets.length];
        long start = segment.baseOffset();
        long begun = System.nanoTime();
        for (int i = 0; i < targets.length; i++)
            answers[i] = segment.findOffsetByTimestamp(targets[i], start);
        return System.nanoTime() - begun;
    }

    /** A consumer tuned for short reads. */
    public void connect(String server, String topic, int count, int fetchBytes) {
        Map settings = new HashMap();
        settings.put("bootstrap.servers", server);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("fetch.min.bytes", "1");
        settings.put("fetch.max.wait.ms", "5");
        settings.put("max.poll.records", "1000000");
        settings.put("max.partition.fetch.bytes", String.valueOf(fetchBytes));
        settings.put("receive.buffer.bytes", "1048576");
        consumer = new KafkaConsumer(settings, new ByteArrayDeserializer(),
            new ByteArrayDeserializer());
        partitions = new ArrayList();
        for (int i = 0; i < count; i++) partitions.add(new TopicPartition(topic, i));
        consumer.assign(partitions);
    }

    public void disconnect() {
        consumer.close();
    }

    /** What the last loop of lookups found, as JSON: offsets, or -1. */
    public String answers() throws Exception {
        long[] found = new long[answers.length];
        for (int i = 0; i < found.length; i++) found[i] = number(answers[i]);
        return JSON.writeValueAsString(found);
    }

    private static long number(Object answer) {
        Object found = answer instanceof Optional ? ((Optional) answer).orElse(null) : answer;
        if (found == null) return -1;
        return ((FileRecords.TimestampAndOffset) found).offset;
    }

    /** Reads all partitions from the offset of one time to that of another. */
    public long readWindow(long start, long end) {
        received = new ArrayList();
        long begun = System.nanoTime();
        read(offsetsAt(start), offsetsAt(end), true);
        return System.nanoTime() - begun;
    }

    /** Reads all there is, and keeps none of it. */
    public long readAll() {
        count = 0;
        long begun = System.nanoTime();
        read(consumer.beginningOffsets(partitions), consumer.endOffsets(partitions), false);
        return System.nanoTime() - begun;
    }

    private void read(Map starts, Map ends, boolean keep) {
        List waiting = new ArrayList();
        Iterator each = partitions.iterator();
        while (each.hasNext()) {
            TopicPartition place = (TopicPartition) each.next();
            if (offset(starts, place) < offset(ends, place)) waiting.add(place);
        }
        consumer.assign(waiting);
        consumer.resume(waiting); // what an earlier read paused
        each = waiting.iterator();
        while (each.hasNext()) {
            TopicPartition place = (TopicPartition) each.next();
            consumer.seek(place, offset(starts, place));
        }
        while (!waiting.isEmpty()) poll(waiting, ends, keep);
    }

    private void poll(List waiting, Map ends, boolean keep) {
        ConsumerRecords records = consumer.poll(Duration.ofSeconds(10));
        if (records.isEmpty()) throw new IllegalStateException("no record within ten seconds");
        Iterator each = records.partitions().iterator();
        while (each.hasNext()) {
            TopicPartition place = (TopicPartition) each.next();
            List found = records.records(place);
            int wanted = found.size();
            long end = offset(ends, place);
            while (wanted > 0 && ((ConsumerRecord) found.get(wanted - 1)).offset() >= end) wanted--;
            if (keep) received.add(found.subList(0, wanted));
            count += wanted;
            if (consumer.position(place) >= end && waiting.remove(place))
                consumer.pause(Collections.singleton(place));
        }
    }

    /** Of a partition without a record so late, the end. */
    private Map offsetsAt(long time) {
        Map wanted = new HashMap();
        Iterator each = partitions.iterator();
        while (each.hasNext()) wanted.put(each.next(), Long.valueOf(time));
        Map found = new HashMap(consumer.offsetsForTimes(wanted));
        if (found.containsValue(null)) {
            Map ends = consumer.endOffsets(partitions);
            each = partitions.iterator();
            while (each.hasNext()) {
                Object place = each.next();
                if (found.get(place) == null) found.put(place, ends.get(place));
            }
        }
        return found;
    }

    private static long offset(Map offsets, TopicPartition place) {
        Object found = offsets.get(place);
        return found instanceof Long ? ((Long) found).longValue()
            : ((OffsetAndTimestamp) found).offset();
    }

    /** How many records the last readAll read. */
    public long count() {
        return count;
    }

    /** The values that the last read received, each followed by a line feed. */
    public byte[] values() {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (int i = 0; i < received.size(); i++) {
            List records = (List) received.get(i);
            for (int j = 0; j < records.size(); j++) {
                byte[] value = (byte[]) ((ConsumerRecord) records.get(j)).value();
                all.write(value, 0, value.length);
                all.write('\n');
            }
        }
        return all.toByteArray();
    }
}
