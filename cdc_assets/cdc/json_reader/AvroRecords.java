package cdcassets.json;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.avro.Schema;
import org.apache.avro.file.DataFileReader;
import org.apache.avro.file.SeekableInput;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.hadoop.fs.FSDataInputStream;

/**
 * The records of an Avro container, each as its bytes: they are passed over, not decoded.
 *
 * Avro takes a container that ends within a block for one that ends before it: whether all of the file
 * was read is asked at its end.
 */
final class AvroRecords extends Records {
    private final DataFileReader container;
    private final long fileSize;
    private final Schema schema;
    private final long most;
    private final int kept;
    private byte[] block = new byte[0];
    private BinaryDecoder decoder;
    private long left;
    private int from;
    private int to;

    AvroRecords(FSDataInputStream file, long fileSize, long most, int kept) throws IOException {
        this.container = new DataFileReader(new Input(file), new GenericDatumReader());
        this.fileSize = fileSize;
        this.schema = container.getSchema();
        this.most = most;
        this.kept = kept;
    }

    boolean next() throws IOException {
        while (left == 0) {
            if (!container.hasNext()) {
                if (container.previousSync() < fileSize) {
                    throw new IOException(
                        "it is cut off within a block: " + container.previousSync() + " of " + fileSize
                        + " bytes are whole");
                }
                return false;
            }
            ByteBuffer bytes = container.nextBlock();
            left = container.getBlockCount();
            block = new byte[bytes.remaining()];
            bytes.get(block);
            decoder = DecoderFactory.get().binaryDecoder(block, decoder);
            to = 0;
        }
        from = to;
        GenericDatumReader.skip(schema, decoder);
        to = block.length - decoder.inputStream().available();
        left--;
        return true;
    }

    byte[] bytes() {
        return Arrays.copyOfRange(block, from, size() > most ? from + Math.min(kept, to - from) : to);
    }

    long size() {
        return to - from;
    }

    byte[] schema() {
        return schema.toString().getBytes(StandardCharsets.UTF_8);
    }

    void close() throws IOException {
        container.close();
    }

    /** A file of Hadoop's for Avro. */
    private static final class Input implements SeekableInput {
        private final FSDataInputStream file;

        Input(FSDataInputStream file) {
            this.file = file;
        }

        public void seek(long at) throws IOException {
            file.seek(at);
        }

        public long tell() throws IOException {
            return file.getPos();
        }

        public long length() {
            return Long.MAX_VALUE; // asked for by nothing that reads from the beginning
        }

        public int read(byte[] bytes, int from, int length) throws IOException {
            return file.read(bytes, from, length);
        }

        public void close() throws IOException {
            file.close();
        }
    }
}
