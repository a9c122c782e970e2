package cdcassets.json;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.avro.Schema;
import org.apache.avro.file.DataFileStream;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/** The records of an Avro container, each as its bytes: they are passed over, not decoded. */
final class AvroRecords extends Records {
    private final DataFileStream stream;
    private final Schema schema;
    private final long most;
    private final int kept;
    private byte[] block = new byte[0];
    private BinaryDecoder decoder;
    private long left;
    private int from;
    private int to;

    AvroRecords(InputStream file, long most, int kept) throws IOException {
        this.stream = new DataFileStream(file, new GenericDatumReader());
        this.schema = stream.getSchema();
        this.most = most;
        this.kept = kept;
    }

    boolean next() throws IOException {
        while (left == 0) {
            if (!stream.hasNext()) {
                return false;
            }
            ByteBuffer bytes = stream.nextBlock();
            left = stream.getBlockCount();
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
        stream.close();
    }
}
