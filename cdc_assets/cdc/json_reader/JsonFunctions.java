package cdcassets.json;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Functions of JSON texts for Spark's SQL; Spark's generated code calls each `invoke`.
 *
 * `read` is named by what it reads, a specification of {@link Document}, so that its type is known
 * while a query is planned. The others take JSON that `read` gave, and leave values as they are:
 *
 *   values_at(object, names)      the values of some members, null where there is none
 *   pick(names, objects, ignored) the object of these names, each with its first value in one of the
 *                                 objects that is none of the ignored; null where one has none or null
 *   object_of(names, values)      the object of these members, in order, without those of no value
 *   overlay(object, other)        an object with the other's values of its own names
 *   without(object, names, begin) an object without members of these names, or of names that begin
 *                                 so, if not null: its `json`, and its `size`
 */
public class JsonFunctions implements FunctionCatalog {
    private String name;

    public void initialize(String name, CaseInsensitiveStringMap options) {
        this.name = name;
    }

    public String name() {
        return name;
    }

    public Identifier[] listFunctions(String[] namespace) {
        return new Identifier[0];
    }

    public UnboundFunction loadFunction(Identifier identifier) {
        return new Named(identifier.name());
    }

    /** A function by its name. */
    static final class Named implements UnboundFunction {
        private final String name;

        Named(String name) {
            this.name = name;
        }

        public BoundFunction bind(StructType arguments) {
            if (name.equals("values_at")) {
                return new ValuesAt();
            }
            if (name.equals("pick")) {
                return new Pick();
            }
            if (name.equals("object_of")) {
                return new ObjectOf();
            }
            if (name.equals("overlay")) {
                return new Overlay();
            }
            if (name.equals("without")) {
                return new Without();
            }
            return new Read(name, arguments.fields()[0].dataType());
        }

        public String description() {
            return name;
        }

        public String name() {
            return name;
        }
    }

    /** What is common to the functions. */
    abstract static class Function implements BoundFunction {
        public boolean isResultNullable() {
            return true;
        }

        public String canonicalName() {
            return "cdcassets.json." + name();
        }
    }

    /** Reads documents, as BINARY or STRING, into a row. */
    public static final class Read extends Function implements ScalarFunction {
        private final String specification;
        private final DataType argument;
        private transient Document document;

        Read(String specification, DataType argument) {
            this.specification = specification;
            this.argument = argument;
        }

        public DataType[] inputTypes() {
            return new DataType[] {argument instanceof StringType
                ? DataTypes.StringType : DataTypes.BinaryType};
        }

        public DataType resultType() {
            return document().type;
        }

        public String name() {
            return specification;
        }

        private Document document() {
            if (document == null) {
                document = new Document(Specification.parse(specification));
            }
            return document;
        }

        public InternalRow invoke(byte[] value) {
            return value == null ? null : document().read(value);
        }

        public InternalRow invoke(UTF8String value) {
            return value == null ? null : document().read(value.getBytes());
        }
    }

    /** The members of an object, by name. */
    public static final class ValuesAt extends Function implements ScalarFunction {
        private transient Members members;

        public DataType[] inputTypes() {
            return new DataType[] {
                DataTypes.StringType, DataTypes.createArrayType(DataTypes.StringType)};
        }

        public DataType resultType() {
            return DataTypes.createArrayType(DataTypes.StringType);
        }

        public String name() {
            return "values_at";
        }

        public ArrayData invoke(UTF8String object, ArrayData names) {
            if (object == null || names == null) {
                return null;
            }
            if (members == null) {
                members = new Members();
            }
            return members.read(object) ? members.valuesAt(names) : null;
        }
    }

    /** The object of some names, their values taken from several objects. */
    public static final class Pick extends Function implements ScalarFunction {
        private static final UTF8String NULL = UTF8String.fromString("null");

        private transient Members members;

        public DataType[] inputTypes() {
            DataType texts = DataTypes.createArrayType(DataTypes.StringType);
            return new DataType[] {texts, texts, texts};
        }

        public DataType resultType() {
            return DataTypes.StringType;
        }

        public String name() {
            return "pick";
        }

        public UTF8String invoke(ArrayData names, ArrayData objects, ArrayData ignored) {
            if (names == null || objects == null || ignored == null || names.numElements() == 0) {
                return null;
            }
            if (members == null) {
                members = new Members();
            }
            Object[] found = new Object[names.numElements()];
            int missing = found.length;
            for (int i = 0; i < objects.numElements() && missing > 0; i++) {
                if (objects.isNullAt(i) || !members.read(objects.getUTF8String(i))) {
                    continue;
                }
                ArrayData values = members.valuesAt(names);
                for (int j = 0; j < found.length; j++) {
                    if (found[j] == null && !values.isNullAt(j) && !isIn(ignored, values, j)) {
                        found[j] = values.getUTF8String(j);
                        missing--;
                    }
                }
            }
            for (int j = 0; j < found.length; j++) {
                if (found[j] == null || found[j].equals(NULL)) {
                    return null;
                }
            }
            return ObjectOf.object(names, new GenericArrayData(found));
        }

        private static boolean isIn(ArrayData ignored, ArrayData values, int at) {
            for (int i = 0; i < ignored.numElements(); i++) {
                if (!ignored.isNullAt(i)
                    && ignored.getUTF8String(i).equals(values.getUTF8String(at))) {
                    return true;
                }
            }
            return false;
        }
    }

    /** An object of names and the JSON of their values. */
    public static final class ObjectOf extends Function implements ScalarFunction {
        public DataType[] inputTypes() {
            DataType texts = DataTypes.createArrayType(DataTypes.StringType);
            return new DataType[] {texts, texts};
        }

        public DataType resultType() {
            return DataTypes.StringType;
        }

        public String name() {
            return "object_of";
        }

        public UTF8String invoke(ArrayData names, ArrayData values) {
            return names == null || values == null ? null : object(names, values);
        }

        static UTF8String object(ArrayData names, ArrayData values) {
            int[] order = inOrder(names, values);
            Buffer out = new Buffer(256);
            out.put('{');
            for (int i = 0; i < order.length; i++) {
                if (i > 0) {
                    out.put(',');
                }
                byte[] name = names.getUTF8String(order[i]).getBytes();
                Text.putString(out, name, 0, name.length);
                out.put(':');
                byte[] value = values.getUTF8String(order[i]).getBytes();
                out.put(value, 0, value.length);
            }
            out.put('}');
            return UTF8String.fromBytes(out.bytes, 0, out.length);
        }

        /** The numbers of those that have both, by name: of a key there are few. */
        private static int[] inOrder(ArrayData names, ArrayData values) {
            int[] order = new int[names.numElements()];
            int count = 0;
            for (int i = 0; i < order.length; i++) {
                if (!names.isNullAt(i) && !values.isNullAt(i)) {
                    byte[] name = names.getUTF8String(i).getBytes();
                    int at = count++;
                    while (at > 0 && isBefore(name, names.getUTF8String(order[at - 1]).getBytes())) {
                        order[at] = order[at - 1];
                        at--;
                    }
                    order[at] = i;
                }
            }
            return Arrays.copyOf(order, count);
        }

        private static boolean isBefore(byte[] name, byte[] other) {
            return Text.compare(name, 0, name.length, other, 0, other.length) < 0;
        }
    }

    /** An object whose members take the values of another's members of the same names. */
    public static final class Overlay extends Function implements ScalarFunction {
        private transient Members members, others;

        public DataType[] inputTypes() {
            return new DataType[] {DataTypes.StringType, DataTypes.StringType};
        }

        public DataType resultType() {
            return DataTypes.StringType;
        }

        public String name() {
            return "overlay";
        }

        public UTF8String invoke(UTF8String object, UTF8String other) {
            if (object == null || other == null) {
                return null;
            }
            if (members == null) {
                members = new Members();
                others = new Members();
            }
            return members.read(object) && others.read(other) ? members.overlaid(others) : null;
        }
    }

    /** An object without some of its members. */
    public static final class Without extends Function implements ScalarFunction {
        private transient Members members;
        private transient Canonical canonical;

        public DataType[] inputTypes() {
            return new DataType[] {DataTypes.StringType,
                DataTypes.createArrayType(DataTypes.StringType), DataTypes.StringType};
        }

        public DataType resultType() {
            return new StructType().add("json", DataTypes.StringType, true)
                .add("size", DataTypes.IntegerType, true);
        }

        public String name() {
            return "without";
        }

        public InternalRow invoke(UTF8String object, ArrayData names, UTF8String begin) {
            if (object == null || names == null) {
                return null;
            }
            if (members == null) {
                members = new Members();
                canonical = new Canonical();
            }
            byte[] json = canonical.textOf(object.getBytes(), 0);
            return members.read(UTF8String.fromBytes(json)) ? members.without(names, begin) : null;
        }
    }
}
