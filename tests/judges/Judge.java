import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.PrintStream;
import java.io.StringWriter;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.FileLogInputStream;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Crc32C;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogFileUtils;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TimestampOffset;

/**
 * Kafka's storage classes behind calls that move whole batches, files and lists as JSON text.
 *
 * Compiled in memory by Janino, which knows neither lambdas nor inferred generics. Every method
 * answers with what Kafka's own class answered, or throws what it threw; nothing is judged here.
 * judge.py documents each call.
 */
public class Judge {
    private static final ObjectMapper JSON = new ObjectMapper();

    // ------------------------------------------------------------------ segments: write, recover

    public void writeSegment(String folder, long baseOffset, String batches, int indexIntervalBytes,
                             int segmentIndexBytes) throws Exception {
        LogSegment segment = open(folder, baseOffset, indexIntervalBytes, segmentIndexBytes, false);
        Iterator all = JSON.readTree(batches).elements();
        while (all.hasNext()) {
            JsonNode batch = (JsonNode) all.next();
            segment.append(batch.get("last_offset").asLong(), build(batch));
        }
        segment.close();
    }

    public byte[] encodeBatch(String batch) throws Exception {
        return Utils.toArray(build(JSON.readTree(batch)).buffer());
    }

    /** Bytes cut off the end of the log. */
    public int recover(String folder, long baseOffset, int indexIntervalBytes, int segmentIndexBytes)
            throws Exception {
        LogSegment segment = open(folder, baseOffset, indexIntervalBytes, segmentIndexBytes, true);
        File scratch = Files.createTempDirectory("kafka-recover").toFile();
        try {
            TopicPartition partition = new TopicPartition("judged", 0);
            ProducerStateManager producers = new ProducerStateManager(partition, scratch, 300000,
                new ProducerStateManagerConfig(86400000, true), Time.SYSTEM);
            LeaderEpochCheckpointFile checkpoint = new LeaderEpochCheckpointFile(
                LeaderEpochCheckpointFile.newFile(scratch), new LogDirFailureChannel(1));
            int cut = segment.recover(producers,
                new LeaderEpochFileCache(partition, checkpoint, new KafkaScheduler(1)));
            segment.close();
            return cut;
        } finally {
            Utils.delete(scratch);
        }
    }

    private static LogSegment open(String folder, long baseOffset, int indexIntervalBytes,
                                   int segmentIndexBytes, boolean exists) throws IOException {
        Map settings = new HashMap();
        settings.put("index.interval.bytes", String.valueOf(indexIntervalBytes));
        settings.put("segment.index.bytes", String.valueOf(segmentIndexBytes));
        return LogSegment.open(new File(folder), baseOffset, new LogConfig(settings), Time.SYSTEM,
            exists, 0, false, "");
    }

    private static MemoryRecords build(JsonNode batch) throws Exception {
        if (batch.get("records").size() == 0 && batch.get("control").isNull()) return empty(batch);
        byte magic = (byte) batch.get("magic").asInt();
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(1024),
            magic, Compression.of(batch.get("codec").asText()).build(), timestampType(batch),
            batch.get("base_offset").asLong(), batch.get("append_time").asLong(),
            batch.get("producer_id").asLong(), (short) batch.get("producer_epoch").asInt(),
            batch.get("base_sequence").asInt(), batch.get("transactional").asBoolean(),
            !batch.get("control").isNull(), batch.get("leader_epoch").asInt(), Integer.MAX_VALUE,
            batch.get("delete_horizon_ms").asLong());
        if (batch.get("control").isNull()) {
            append(builder, batch.get("records"));
        } else {
            ControlRecordType type = ControlRecordType.valueOf(batch.get("control").asText());
            builder.appendEndTxnMarker(batch.get("max_timestamp").asLong(),
                new EndTransactionMarker(type, batch.get("coordinator_epoch").asInt()));
        }
        if (magic == 2) builder.overrideLastOffset(batch.get("last_offset").asLong());
        return builder.build();
    }

    private static MemoryRecords empty(JsonNode batch) {
        ByteBuffer header = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(header, (byte) 2, batch.get("producer_id").asLong(),
            (short) batch.get("producer_epoch").asInt(), batch.get("base_sequence").asInt(),
            batch.get("base_offset").asLong(), batch.get("last_offset").asLong(),
            batch.get("leader_epoch").asInt(), timestampType(batch),
            batch.get("max_timestamp").asLong(), batch.get("transactional").asBoolean(), false);
        header.flip();
        return MemoryRecords.readableRecords(header);
    }

    private static TimestampType timestampType(JsonNode batch) {
        return TimestampType.forName(batch.get("timestamp_type").asText());
    }

    private static void append(MemoryRecordsBuilder builder, JsonNode records) throws Exception {
        Iterator all = records.elements();
        while (all.hasNext()) {
            JsonNode record = (JsonNode) all.next();
            JsonNode pairs = record.required(4);
            Header[] headers = new Header[pairs.size()];
            for (int i = 0; i < headers.length; i++) {
                JsonNode pair = pairs.required(i);
                headers[i] = new RecordHeader(pair.required(0).asText(), bytes(pair.required(1)));
            }
            builder.appendWithOffset(record.required(0).asLong(), record.required(1).asLong(),
                bytes(record.required(2)), bytes(record.required(3)), headers);
        }
    }

    private static byte[] bytes(JsonNode base64) throws IOException {
        return base64.isNull() ? null : base64.binaryValue();
    }

    // ------------------------------------------------------------------ reading back

    public String readBatches(String path, boolean withRecords) throws Exception {
        StringWriter text = new StringWriter();
        JsonGenerator json = JSON.getFactory().createGenerator(text);
        FileRecords log = FileRecords.open(existing(path), false);
        try {
            json.writeStartArray();
            int end = 0;
            Iterator batches = log.batches().iterator();
            while (batches.hasNext()) {
                FileLogInputStream.FileChannelRecordBatch batch =
                    (FileLogInputStream.FileChannelRecordBatch) batches.next();
                batch.ensureValid();
                writeBatch(json, batch, withRecords);
                end = batch.position() + batch.sizeInBytes();
            }
            json.writeEndArray();
            if (end != log.sizeInBytes())
                throw new IllegalStateException("Kafka reads no batch from position " + end
                    + " of " + path + " (" + log.sizeInBytes() + " bytes)");
        } finally {
            log.closeHandlers();
        }
        json.close();
        return text.toString();
    }

    private static void writeBatch(JsonGenerator json,
                                   FileLogInputStream.FileChannelRecordBatch batch,
                                   boolean withRecords) throws IOException {
        json.writeStartObject();
        json.writeNumberField("position", batch.position());
        json.writeNumberField("size", batch.sizeInBytes());
        json.writeNumberField("base_offset", batch.baseOffset());
        json.writeNumberField("last_offset", batch.lastOffset());
        json.writeNumberField("max_timestamp", batch.maxTimestamp());
        json.writeNumberField("magic", batch.magic());
        json.writeStringField("codec", batch.compressionType().name);
        json.writeStringField("timestamp_type", batch.timestampType().name);
        json.writeNumberField("leader_epoch", batch.partitionLeaderEpoch());
        json.writeNumberField("producer_id", batch.producerId());
        json.writeNumberField("producer_epoch", batch.producerEpoch());
        json.writeNumberField("base_sequence", batch.baseSequence());
        json.writeBooleanField("transactional", batch.isTransactional());
        json.writeBooleanField("control", batch.isControlBatch());
        json.writeNumberField("delete_horizon_ms", batch.deleteHorizonMs().orElse(-1));
        json.writeNumberField("crc", batch.checksum());
        if (batch.countOrNull() == null) json.writeNullField("count");
        else json.writeNumberField("count", batch.countOrNull().intValue());
        json.writeArrayFieldStart("records");
        Iterator records = batch.iterator();
        while (withRecords && records.hasNext()) writeRecord(json, (Record) records.next());
        json.writeEndArray();
        json.writeEndObject();
    }

    private static void writeRecord(JsonGenerator json, Record record) throws IOException {
        json.writeStartArray();
        json.writeNumber(record.offset());
        json.writeNumber(record.timestamp());
        writeBytes(json, record.hasKey() ? Utils.toArray(record.key()) : null);
        writeBytes(json, record.hasValue() ? Utils.toArray(record.value()) : null);
        json.writeStartArray();
        Header[] headers = record.headers();
        for (int i = 0; i < headers.length; i++) {
            json.writeStartArray();
            json.writeString(headers[i].key());
            writeBytes(json, headers[i].value());
            json.writeEndArray();
        }
        json.writeEndArray();
        json.writeEndArray();
    }

    private static void writeBytes(JsonGenerator json, byte[] bytes) throws IOException {
        if (bytes == null) json.writeNull();
        else json.writeBinary(bytes);
    }

    // ------------------------------------------------------------------ lookups

    public String findByTimestamp(String folder, long baseOffset, String timestamps,
                                  long startingOffset) throws Exception {
        LogSegment segment = openToRead(folder, baseOffset);
        StringWriter text = new StringWriter();
        JsonGenerator json = JSON.getFactory().createGenerator(text);
        long[] targets = (long[]) JSON.readValue(timestamps, long[].class);
        json.writeStartArray();
        for (int i = 0; i < targets.length; i++) {
            Optional found = segment.findOffsetByTimestamp(targets[i], startingOffset);
            FileRecords.TimestampAndOffset entry =
                (FileRecords.TimestampAndOffset) found.orElse(null);
            if (entry == null) json.writeNull();
            else writePair(json, entry.timestamp, entry.offset);
        }
        json.writeEndArray();
        json.close();
        closeUnchanged(segment);
        return text.toString();
    }

    public String findByOffset(String folder, long baseOffset, String offsets) throws Exception {
        LogSegment segment = openToRead(folder, baseOffset);
        StringWriter text = new StringWriter();
        JsonGenerator json = JSON.getFactory().createGenerator(text);
        long[] targets = (long[]) JSON.readValue(offsets, long[].class);
        json.writeStartArray();
        for (int i = 0; i < targets.length; i++) {
            FileRecords.LogOffsetPosition found = segment.translateOffset(targets[i]);
            if (found == null) json.writeNull();
            else writePair(json, found.offset, found.position);
        }
        json.writeEndArray();
        json.close();
        closeUnchanged(segment);
        return text.toString();
    }

    private static LogSegment openToRead(String folder, long baseOffset) throws Exception {
        File directory = new File(folder);
        String name = LogFileUtils.filenamePrefixFromOffset(baseOffset);
        existing(folder + "/" + name + ".log");
        existing(folder + "/" + name + ".index");
        existing(folder + "/" + name + ".timeindex");
        return open(folder, baseOffset, 4096, 10485760, true);
    }

    /** LogSegment.close would append to the time index and trim the files. */
    private static void closeUnchanged(LogSegment segment) throws IOException {
        segment.offsetIndex().closeHandler();
        segment.timeIndex().closeHandler();
        segment.log().closeHandlers();
    }

    public String offsetIndex(String path, long baseOffset, String targets) throws Exception {
        OffsetIndex index = new OffsetIndex(existing(path), baseOffset, -1, false);
        StringWriter text = new StringWriter();
        JsonGenerator json = JSON.getFactory().createGenerator(text);
        json.writeStartArray();
        if (targets == null) {
            for (int i = 0; i < index.entries(); i++) write(json, index.entry(i));
        } else {
            long[] offsets = (long[]) JSON.readValue(targets, long[].class);
            for (int i = 0; i < offsets.length; i++) write(json, index.lookup(offsets[i]));
        }
        json.writeEndArray();
        json.close();
        index.closeHandler();
        return text.toString();
    }

    private static void write(JsonGenerator json, OffsetPosition entry) throws IOException {
        writePair(json, entry.offset(), entry.position());
    }

    public String timeIndex(String path, long baseOffset, String targets) throws Exception {
        TimeIndex index = new TimeIndex(existing(path), baseOffset, -1, false);
        StringWriter text = new StringWriter();
        JsonGenerator json = JSON.getFactory().createGenerator(text);
        json.writeStartArray();
        if (targets == null) {
            for (int i = 0; i < index.entries(); i++) write(json, index.entry(i));
        } else {
            long[] times = (long[]) JSON.readValue(targets, long[].class);
            for (int i = 0; i < times.length; i++) write(json, index.lookup(times[i]));
        }
        json.writeEndArray();
        json.close();
        index.closeHandler();
        return text.toString();
    }

    private static void write(JsonGenerator json, TimestampOffset entry) throws IOException {
        writePair(json, entry.timestamp(), entry.offset());
    }

    private static void writePair(JsonGenerator json, long first, long second) throws IOException {
        json.writeStartArray();
        json.writeNumber(first);
        json.writeNumber(second);
        json.writeEndArray();
    }

    public void sanityCheck(String path, long baseOffset) throws Exception {
        File file = existing(path);
        if (path.endsWith(".timeindex")) {
            TimeIndex index = new TimeIndex(file, baseOffset, -1, false);
            try { index.sanityCheck(); } finally { index.closeHandler(); }
        } else {
            OffsetIndex index = new OffsetIndex(file, baseOffset, -1, false);
            try { index.sanityCheck(); } finally { index.closeHandler(); }
        }
    }

    /** Kafka creates an index file that is missing; a judge must not. */
    private static File existing(String path) throws FileNotFoundException {
        File file = new File(path);
        if (!file.isFile()) throw new FileNotFoundException(path);
        return file;
    }

    // ------------------------------------------------------------------ DumpLogSegments, hashes

    /** What DumpLogSegments printed: standard output, then standard error. */
    public String[] dump(String[] arguments) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream systemErr = System.err;
        System.setErr(new PrintStream(err, true, "UTF-8"));
        try {
            scala.Console.withOut(new PrintStream(out, true, "UTF-8"), new Dumping(arguments));
        } finally {
            System.setErr(systemErr);
        }
        return new String[] {out.toString("UTF-8"), err.toString("UTF-8")};
    }

    private static class Dumping extends scala.runtime.AbstractFunction0 {
        private final String[] arguments;

        Dumping(String[] arguments) {
            this.arguments = arguments;
        }

        public Object apply() {
            kafka.tools.DumpLogSegments.main(arguments);
            return null;
        }
    }

    public String murmur2(String items) throws Exception {
        Iterator all = JSON.readTree(items).elements();
        StringWriter text = new StringWriter();
        JsonGenerator json = JSON.getFactory().createGenerator(text);
        json.writeStartArray();
        while (all.hasNext()) json.writeNumber(Utils.murmur2(bytes((JsonNode) all.next())));
        json.writeEndArray();
        json.close();
        return text.toString();
    }

    public long crc32c(byte[] data) {
        return Crc32C.compute(data, 0, data.length);
    }
}
