import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.StringWriter;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's log cleaner over the segments of one log partition, for cleaner.py.
 *
 * Compiled in memory by Janino, like Judge.java. Behind the given segments an empty one is opened,
 * which is the active segment that Kafka leaves alone.
 */
public class Cleaning {
    private static final ObjectMapper JSON = new ObjectMapper();

    /**
     * What a round at `now` would clean, whether it is due, and how segments are grouped; with
     * `act` it is done. The folder is called topic-partition; its parent has the checkpoint.
     */
    public String clean(String folder, String settings, long logStart, final long now,
                        int mapBytes, boolean act) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        File home = new File(folder);
        LogConfig config = new LogConfig((Map) JSON.readValue(settings, HashMap.class));
        UnifiedLog log = UnifiedLog.create(home, config, logStart, 0L, scheduler,
            new BrokerTopicStats(), new Frozen(now), 300000,
            new ProducerStateManagerConfig(86400000, false), 600000,
            new LogDirFailureChannel(1), true, Optional.empty());
        try {
            log.roll();
            log.updateHighWatermark(log.logEndOffset());
            return clean(log, home, now, mapBytes, act);
        } finally {
            log.close();
            scheduler.shutdown();
        }
    }

    private static String clean(UnifiedLog log, File home, long now, int mapBytes, boolean act)
            throws Exception {
        TopicPartition partition = log.topicPartition();
        ConcurrentHashMap logs = new ConcurrentHashMap();
        logs.put(partition, log);
        LogCleanerManager manager = new LogCleanerManager(
            Collections.singletonList(home.getParentFile()), logs, new LogDirFailureChannel(1));
        Object checkpoint = manager.allCleanerCheckpoints().get(partition);
        LogCleanerManager.OffsetsToClean offsets =
            LogCleanerManager.cleanableOffsets(log, Optional.ofNullable((Long) checkpoint), now);
        LogToClean wanted = new LogToClean(log, offsets.firstDirtyOffset(),
            offsets.firstUncleanableDirtyOffset(), false);
        boolean due =
            manager.grabFilthiestCompactedLog(new Frozen(now), new PreCleanStats()).isPresent();
        manager.removeMetrics();
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(mapBytes), 1 << 20, 1 << 28, 0.9,
            new Throttler(1e15, 300, "cleaner", "bytes", Time.SYSTEM), new Frozen(now),
            new Consumer() { public void accept(Object partition) { } });
        StringWriter text = new StringWriter();
        JsonGenerator json = JSON.getFactory().createGenerator(text);
        json.writeStartObject();
        json.writeNumberField("first_dirty_offset", offsets.firstDirtyOffset());
        json.writeNumberField("first_uncleanable_offset", offsets.firstUncleanableDirtyOffset());
        json.writeNumberField("clean_bytes", wanted.cleanBytes());
        json.writeNumberField("dirty_bytes", wanted.cleanableBytes());
        json.writeNumberField("dirty_ratio", wanted.cleanableRatio());
        json.writeBooleanField("due", due);
        json.writeArrayFieldStart("groups");
        Iterator groups = cleaner.groupSegmentsBySize(
            log.logSegments(0L, offsets.firstUncleanableDirtyOffset()), log.config().segmentSize(),
            log.config().maxIndexSize, offsets.firstUncleanableDirtyOffset()).iterator();
        while (groups.hasNext()) {
            json.writeStartArray();
            Iterator segments = ((List) groups.next()).iterator();
            while (segments.hasNext())
                json.writeNumber(((LogSegment) segments.next()).baseOffset());
            json.writeEndArray();
        }
        json.writeEndArray();
        if (act) done(json, cleaner.doClean(wanted, now));
        json.writeEndObject();
        json.close();
        return text.toString();
    }

    private static void done(JsonGenerator json, Map.Entry result) throws Exception {
        CleanerStats stats = (CleanerStats) result.getValue();
        json.writeNumberField("end_offset", ((Long) result.getKey()).longValue());
        json.writeNumberField("invalid", stats.invalidMessagesRead());
        json.writeNumberField("seconds", stats.elapsedSecs());
        json.writeNumberField("records", stats.messagesRead());
    }

    private static class Frozen implements Time {
        private final long now;

        Frozen(long now) { this.now = now; }

        public long milliseconds() { return now; }

        public long nanoseconds() { return System.nanoTime(); }

        public void sleep(long ms) { Time.SYSTEM.sleep(ms); }

        public void waitObject(Object object, Supplier condition, long deadline)
                throws InterruptedException {
            Time.SYSTEM.waitObject(object, condition, deadline);
        }
    }
}
