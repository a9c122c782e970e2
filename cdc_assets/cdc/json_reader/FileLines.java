package cdcassets.json;

import java.io.BufferedInputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.net.URLDecoder;
import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.zip.GZIPInputStream;
import com.github.luben.zstd.ZstdInputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.util.SerializableConfiguration;
import org.xerial.snappy.SnappyFramedInputStream;

/**
 * A data source of the lines of files, numbered, each file in order by one task.
 *
 * A file may have companions, which are read line by line with it. How a file is compressed (gzip,
 * zstd, framed snappy, not at all) is told by its first bytes, since names don't say.
 *
 * Columns: `file` (its place among the files), `line` (from 0), `value` (its bytes without the line
 * break, or the first `kept` of them where it has more than `most`), `bytes` (how many it has), and
 * `first` and `second`, the lines of the companions, null without one.
 *
 * Options: `files`, a line each: its size, its path and those of its companions, each encoded as in a
 * URL, with spaces between (`-` for no companion); `most`; `kept`; `partition_bytes`; `joined`, if JSON
 * objects may follow one another on a line: each counts as a line then.
 */
public class FileLines implements TableProvider {
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return shape();
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        return new Files();
    }

    static StructType shape() {
        return new StructType()
            .add("file", DataTypes.IntegerType)
            .add("line", DataTypes.LongType)
            .add("value", DataTypes.BinaryType)
            .add("bytes", DataTypes.LongType)
            .add("first", DataTypes.BinaryType)
            .add("second", DataTypes.BinaryType);
    }

    /** The table of all lines. */
    static final class Files implements Table, SupportsRead {
        public String name() {
            return "lines of files";
        }

        public StructType schema() {
            return shape();
        }

        public Set capabilities() {
            return Collections.singleton(TableCapability.BATCH_READ);
        }

        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return new Reading(options);
        }
    }

    /** What is read: the files, dealt to partitions in their order. */
    static final class Reading implements ScanBuilder, Scan, Batch {
        private final CaseInsensitiveStringMap options;

        Reading(CaseInsensitiveStringMap options) {
            this.options = options;
        }

        public Scan build() {
            return this;
        }

        public StructType readSchema() {
            return shape();
        }

        public Batch toBatch() {
            return this;
        }

        public InputPartition[] planInputPartitions() {
            String[] files = options.get("files").split("\n");
            long most = Long.parseLong(options.get("partition_bytes"));
            InputPartition[] partitions = new InputPartition[files.length];
            int made = 0;
            int first = 0;
            long size = 0;
            for (int i = 0; i < files.length; i++) {
                long bytes = Long.parseLong(files[i].substring(0, files[i].indexOf(' ')));
                if (i > first && size + bytes > most) {
                    partitions[made++] = new Part(first, (String[]) Arrays.copyOfRange(files, first, i));
                    first = i;
                    size = 0;
                }
                size += bytes;
            }
            partitions[made++] = new Part(first, (String[]) Arrays.copyOfRange(files, first, files.length));
            return (InputPartition[]) Arrays.copyOf(partitions, made);
        }

        public PartitionReaderFactory createReaderFactory() {
            Configuration hadoop = SparkSession.active().sparkContext().hadoopConfiguration();
            return new Factory(
                new SerializableConfiguration(hadoop),
                Long.parseLong(options.get("most")),
                Integer.parseInt(options.get("kept")),
                options.getBoolean("joined", false));
        }
    }

    /** Some files, the first of which has this number. */
    static final class Part implements InputPartition {
        final int first;
        final String[] files;

        Part(int first, String[] files) {
            this.first = first;
            this.files = files;
        }
    }

    /** Makes the readers, where the tasks are. */
    static final class Factory implements PartitionReaderFactory {
        private final SerializableConfiguration hadoop;
        private final long most;
        private final int kept;
        private final boolean joined;

        Factory(SerializableConfiguration hadoop, long most, int kept, boolean joined) {
            this.hadoop = hadoop;
            this.most = most;
            this.kept = kept;
            this.joined = joined;
        }

        public PartitionReader createReader(InputPartition partition) {
            return new Reader((Part) partition, hadoop.value(), most, kept, joined);
        }
    }

    /** Reads files one after another. */
    static final class Reader implements PartitionReader {
        private final Part part;
        private final Configuration hadoop;
        private final long most;
        private final int kept;
        private final boolean joined;
        private int file = -1;
        private long line;
        private String[] paths = new String[0];
        private Lines[] open = new Lines[0];
        private Object row;

        Reader(Part part, Configuration hadoop, long most, int kept, boolean joined) {
            this.part = part;
            this.hadoop = hadoop;
            this.most = most;
            this.kept = kept;
            this.joined = joined;
        }

        public boolean next() throws IOException {
            while (!step()) {
                close();
                if (++file == part.files.length) {
                    return false;
                }
                openFile(part.files[file].split(" "));
            }
            return true;
        }

        private boolean step() throws IOException {
            if (open.length == 0) {
                return false;
            }
            try {
                boolean has = open[0].next();
                Object[] values = {part.first + file, line, open[0].bytes(), open[0].size(), null, null};
                for (int i = 1; i < open.length; i++) {
                    if (open[i] != null) {
                        if (open[i].next() != has) {
                            throw new IOException(
                                "it has " + (has ? "fewer" : "more") + " lines than " + paths[0]
                                + ", whose lines it belongs to: " + paths[i]);
                        }
                        values[3 + i] = open[i].bytes();
                    }
                }
                line++;
                row = new GenericInternalRow(values);
                return has;
            } catch (IOException error) {
                throw new IOException(paths[0] + ": " + error.getMessage(), error);
            } catch (RuntimeException error) {
                throw new IOException(paths[0] + ": " + error.getMessage(), error);
            }
        }

        private void openFile(String[] asked) throws IOException {
            paths = new String[asked.length - 1];
            open = new Lines[paths.length];
            line = 0;
            for (int i = 0; i < paths.length; i++) {
                if (!asked[i + 1].equals("-")) {
                    paths[i] = URLDecoder.decode(asked[i + 1], "UTF-8");
                    Path path = new Path(paths[i]);
                    InputStream bytes = path.getFileSystem(hadoop).open(path);
                    open[i] = new Lines(bytes, most, kept, joined && paths.length == 1);
                }
            }
        }

        public Object get() {
            return row;
        }

        public void close() throws IOException {
            for (int i = 0; i < open.length; i++) {
                if (open[i] != null) {
                    open[i].close();
                }
            }
            open = new Lines[0];
        }
    }

    /** The lines of one stream. */
    static final class Lines implements Closeable {
        private final InputStream stream;
        private final long most;
        private final int kept;
        private final boolean joined;
        private final byte[] block = new byte[1 << 16];
        private int at;
        private int end;
        private byte[] line = new byte[1 << 12];
        private long size;
        // Of JSON on this line: open objects and lists, and whether a text, or what a \ escapes, is read.
        private int depth;
        private boolean inText;
        private boolean escaped;

        Lines(InputStream bytes, long most, int kept, boolean joined) throws IOException {
            this.stream = plain(new BufferedInputStream(bytes, 1 << 16));
            this.most = most;
            this.kept = kept;
            this.joined = joined;
        }

        private static InputStream plain(BufferedInputStream bytes) throws IOException {
            byte[] first = new byte[10];
            bytes.mark(first.length);
            int has = bytes.readNBytes(first, 0, first.length);
            bytes.reset();
            if (begins(first, has, new int[] {0x1f, 0x8b})) {
                return new GZIPInputStream(bytes, 1 << 16);
            }
            if (begins(first, has, new int[] {0x28, 0xb5, 0x2f, 0xfd})) {
                return new ZstdInputStream(bytes);
            }
            if (begins(first, has, new int[] {0xff, 6, 0, 0, 's', 'N', 'a', 'P', 'p', 'Y'})) {
                return new SnappyFramedInputStream(bytes);
            }
            return bytes;
        }

        private static boolean begins(byte[] bytes, int has, int[] with) {
            for (int i = 0; i < with.length; i++) {
                if (i >= has || (bytes[i] & 0xff) != with[i]) {
                    return false;
                }
            }
            return true;
        }

        /** Read a line; false at the end, where a last line without a break has been given. */
        boolean next() throws IOException {
            size = 0;
            depth = 0;
            inText = false;
            escaped = false;
            while (fill()) {
                int from = at;
                boolean ends = joined ? scanJson() : scan();
                keep(from, at);
                if (ends) {
                    if (joined && block[at - 1] != '\n') {
                        skipSpace();
                        return true;
                    }
                    size--;
                    return true;
                }
            }
            return size > 0;
        }

        /** Go on to behind a line break, or to the end of the block. */
        private boolean scan() {
            while (at < end) {
                if (block[at++] == '\n') {
                    return true;
                }
            }
            return false;
        }

        /** As `scan`; the end of an object that nothing holds ends the line as well. */
        private boolean scanJson() {
            while (at < end) {
                byte b = block[at++];
                if (b == '\n') {
                    return true;
                }
                if (escaped) {
                    escaped = false;
                } else if (inText) {
                    escaped = b == '\\';
                    inText = b != '"';
                } else if (b == '"') {
                    inText = true;
                } else if (b == '{' || b == '[') {
                    depth++;
                } else if (b == ']') {
                    depth--;
                } else if (b == '}' && --depth == 0) {
                    return true;
                }
            }
            return false;
        }

        /** What follows an object on its line, but for another object, is no line of its own. */
        private void skipSpace() throws IOException {
            while (fill()) {
                byte b = block[at];
                if (b != ' ' && b != '\t' && b != '\r' && b != '\n') {
                    return;
                }
                at++;
                if (b == '\n') {
                    return;
                }
            }
        }

        private boolean fill() throws IOException {
            if (at == end) {
                at = 0;
                end = Math.max(0, stream.read(block));
            }
            return at < end;
        }

        /** Add bytes of the block to the line, as far as they may be asked for. */
        private void keep(int from, int to) {
            if (size <= most) {
                int more = to - from;
                int needed = (int) size + more;
                if (needed > line.length) {
                    line = (byte[]) Arrays.copyOf(line, (int) Math.max((long) needed, Math.min(needed * 2L, Integer.MAX_VALUE - 8L)));
                }
                System.arraycopy(block, from, line, (int) size, more);
            }
            size += to - from;
        }

        byte[] bytes() {
            return Arrays.copyOf(line, (int) (size > most ? Math.min(kept, size) : size));
        }

        long size() {
            return size;
        }

        public void close() throws IOException {
            stream.close();
        }
    }
}
