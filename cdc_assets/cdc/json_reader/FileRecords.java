package cdcassets.json;

import java.io.IOException;
import java.net.URLDecoder;
import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
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

/**
 * A data source of the records of files, numbered, each file in order by one task.
 *
 * Records are lines, or those of an Avro container; a file may have companions, which are read record
 * by record with it. What a file is, and how it is compressed (gzip, zstd, framed snappy, not at all),
 * is told by its first bytes, since names don't say.
 *
 * Columns: `file` (its place among the files), `line` (from 0), `value` (a line without its line break,
 * or a record's bytes in Avro; the first `kept` of them where there are more than `most`), `bytes` (how
 * many there are), and `first` and `second`, the records of the companions, null without one.
 *
 * Options: `files`, a line each: its size, its path and those of its companions, each encoded as in a
 * URL, with spaces between (`-` for no companion); `most`; `kept`; `partition_bytes`; `joined`, if JSON
 * objects may follow one another on a line: each counts as a line then; `schemas`, for one row a file
 * that has Avro's schemas in the place of records, null of lines.
 */
public class FileRecords implements TableProvider {
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
                options.getBoolean("joined", false),
                options.getBoolean("schemas", false));
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
        private final boolean schemas;

        Factory(SerializableConfiguration hadoop, long most, int kept, boolean joined, boolean schemas) {
            this.hadoop = hadoop;
            this.most = most;
            this.kept = kept;
            this.joined = joined;
            this.schemas = schemas;
        }

        public PartitionReader createReader(InputPartition partition) {
            return new Reader((Part) partition, hadoop.value(), most, kept, joined, schemas);
        }
    }

    /** Reads files one after another. */
    static final class Reader implements PartitionReader {
        private final Part part;
        private final Configuration hadoop;
        private final long most;
        private final int kept;
        private final boolean joined;
        private final boolean schemas;
        private int file = -1;
        private long line;
        private String[] paths = new String[0];
        private Records[] open = new Records[0];
        private Object row;

        Reader(Part part, Configuration hadoop, long most, int kept, boolean joined, boolean schemas) {
            this.part = part;
            this.hadoop = hadoop;
            this.most = most;
            this.kept = kept;
            this.joined = joined;
            this.schemas = schemas;
        }

        public boolean next() throws IOException {
            try {
                while (!step()) {
                    close();
                    if (++file == part.files.length) {
                        return false;
                    }
                    openFile(part.files[file].split(" "));
                }
                return true;
            } catch (IOException error) {
                throw new UnreadableFile(paths[0], error);
            } catch (RuntimeException error) { // Avro's, of bytes that are none of its schema's
                throw new UnreadableFile(paths[0], error);
            }
        }

        private boolean step() throws IOException {
            if (open.length == 0) {
                return false;
            }
            if (schemas) {
                row = new GenericInternalRow(
                    new Object[] {part.first + file, 0L, schema(0), 0L, schema(1), schema(2)});
                close();
                return true;
            }
            boolean has = open[0].next();
            Object[] values = {part.first + file, line, open[0].bytes(), open[0].size(), null, null};
            for (int i = 1; i < open.length; i++) {
                if (open[i] != null) {
                    if (open[i].next() != has) {
                        throw new IOException(
                            "it has " + (has ? "more" : "fewer") + " records than " + paths[i]
                            + ", which belongs to it record by record");
                    }
                    values[3 + i] = open[i].bytes();
                }
            }
            line++;
            row = new GenericInternalRow(values);
            return has;
        }

        private byte[] schema(int at) throws IOException {
            return at < open.length && open[at] != null ? open[at].schema() : null;
        }

        private void openFile(String[] asked) throws IOException {
            paths = new String[asked.length - 1];
            open = new Records[paths.length];
            line = 0;
            for (int i = 0; i < paths.length; i++) {
                if (!asked[i + 1].equals("-")) {
                    paths[i] = URLDecoder.decode(asked[i + 1], "UTF-8");
                    Path path = new Path(paths[i]);
                    FSDataInputStream bytes = path.getFileSystem(hadoop).open(path);
                    // What a companion lacks is missed beside the file's own records.
                    long size = i == 0 ? Long.parseLong(asked[0]) : 0;
                    open[i] = Records.of(bytes, size, most, kept, joined);
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
            open = new Records[0];
        }
    }
}
