import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.Utils;

/** `MemoryRecords.filterTo`, which a broker's log cleaner calls, with a filter by offset. */
public class RecordFilters {
    /** The bytes that Kafka keeps of a log; batches that end at `end` stay, even without records. */
    public byte[] filter(String log, String offsets, long now, long deleteRetentionMs, long end)
            throws Exception {
        Set kept = new HashSet();
        Iterator all = new ObjectMapper().readTree(offsets).elements();
        while (all.hasNext()) kept.add(Long.valueOf(((JsonNode) all.next()).asLong()));
        byte[] bytes = Files.readAllBytes(new File(log).toPath());
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        ByteBuffer target = ByteBuffer.allocate(2 * bytes.length + 1024);
        MemoryRecords.FilterResult result = records.filterTo(
            new ByOffset(now, deleteRetentionMs, kept, end), target, BufferSupplier.NO_CACHING);
        ByteBuffer output = result.outputBuffer();
        output.flip();
        return Utils.toArray(output);
    }

    private static class ByOffset extends MemoryRecords.RecordFilter {
        private final Set kept;
        private final long end;

        ByOffset(long now, long deleteRetentionMs, Set kept, long end) {
            super(now, deleteRetentionMs);
            this.kept = kept;
            this.end = end;
        }

        protected MemoryRecords.RecordFilter.BatchRetentionResult checkBatchRetention(
                RecordBatch batch) {
            return new MemoryRecords.RecordFilter.BatchRetentionResult(batch.nextOffset() == end
                ? MemoryRecords.RecordFilter.BatchRetention.RETAIN_EMPTY
                : MemoryRecords.RecordFilter.BatchRetention.DELETE_EMPTY, false);
        }

        protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
            return kept.contains(Long.valueOf(record.offset()));
        }
    }
}
