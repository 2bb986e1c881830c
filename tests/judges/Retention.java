import java.io.File;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Kafka's UnifiedLog over a folder of segments: what its retention leaves. See retention.py. */
public class Retention {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** A clock that stands still. */
    public static class Still implements Time {
        private final long now;

        public Still(long now) {
            this.now = now;
        }

        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return TimeUnit.MILLISECONDS.toNanos(now);
        }

        public void sleep(long ms) {
        }

        public void waitObject(Object object, Supplier condition, long deadline) {
        }
    }

    /** The folder is named topic-partition. All its segments are closed first, by a roll. */
    public String retain(String folder, long logStart, String settings, long now) throws Exception {
        Map config = new HashMap();
        Iterator names = JSON.readTree(settings).fieldNames();
        JsonNode values = JSON.readTree(settings);
        while (names.hasNext()) {
            String name = (String) names.next();
            config.put(name, values.get(name).asText());
        }
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        try {
            UnifiedLog log = UnifiedLog.create(new File(folder), new LogConfig(config), 0L, 0L,
                scheduler, new BrokerTopicStats(), new Still(now), 300000,
                new ProducerStateManagerConfig(86400000, false), 600000,
                new LogDirFailureChannel(1), true, Optional.empty());
            log.roll();
            log.updateHighWatermark(log.logEndOffset());
            log.maybeIncrementLogStartOffset(logStart,
                LogStartOffsetIncrementReason.ClientRecordDeletion);
            log.deleteOldSegments();
            ObjectNode left = JSON.createObjectNode();
            left.put("log_start", log.logStartOffset());
            left.put("end", log.logEndOffset());
            ArrayNode bases = left.putArray("bases");
            Iterator segments = log.logSegments().iterator();
            while (segments.hasNext()) {
                LogSegment segment = (LogSegment) segments.next();
                if (segment.size() > 0) bases.add(segment.baseOffset());
            }
            log.close();
            return left.toString();
        } finally {
            scheduler.shutdown();
        }
    }
}
