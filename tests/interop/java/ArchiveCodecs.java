import io.aeron.archive.codecs.MessageHeaderDecoder;
import io.aeron.archive.codecs.MessageHeaderEncoder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.HexFormat;
import org.agrona.DirectBuffer;
import org.agrona.MutableDirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Aeron Archive's generated codecs, line by line. The line "encode NAME field=value ..." is answered with the message in hexadecimal, and
 * "decode NAME HEX field ..." with the values of the fields. Words are separated by tabs. A field that ends in ":hex" is a blob.
 */
public class ArchiveCodecs
{
    private static final String PACKAGE = "io.aeron.archive.codecs.";
    private static final HexFormat HEX = HexFormat.of();

    public static void main(final String[] args) throws Exception
    {
        final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        String line = lines.readLine();
        while (line != null)
        {
            final String[] words = line.split("\t", -1);
            System.out.println(words[0].equals("encode") ? encode(words) : decode(words));
            line = lines.readLine();
        }
    }

    private static String encode(final String[] words) throws Exception
    {
        final Class<?> type = Class.forName(PACKAGE + words[1] + "Encoder");
        final Object encoder = type.getConstructor().newInstance();
        final UnsafeBuffer buffer = new UnsafeBuffer(new byte[65536]);
        if (words[1].equals("CatalogHeader") || words[1].equals("RecordingDescriptorHeader"))
        {
            new MessageHeaderEncoder().wrap(buffer, 0).blockLength((int)type.getField("BLOCK_LENGTH").get(null))
                .templateId((int)type.getField("TEMPLATE_ID").get(null)).schemaId(101).version(13);
            type.getMethod("wrap", MutableDirectBuffer.class, int.class).invoke(encoder, buffer, 8);
        }
        else
        {
            type.getMethod("wrapAndApplyHeader", MutableDirectBuffer.class, int.class, MessageHeaderEncoder.class)
                .invoke(encoder, buffer, 0, new MessageHeaderEncoder());
        }
        for (int i = 2; i < words.length; i++)
        {
            final int equals = words[i].indexOf('=');
            set(type, encoder, words[i].substring(0, equals), words[i].substring(equals + 1));
        }
        final int length = 8 + (int)type.getMethod("encodedLength").invoke(encoder);
        return HEX.formatHex(buffer.byteArray(), 0, length);
    }

    private static void set(final Class<?> type, final Object encoder, final String name, final String value) throws Exception
    {
        if (name.endsWith(":hex"))
        {
            final byte[] bytes = HEX.parseHex(value);
            final String field = name.substring(0, name.length() - 4);
            final String putter = "put" + field.substring(0, 1).toUpperCase() + field.substring(1);
            type.getMethod(putter, byte[].class, int.class, int.class).invoke(encoder, bytes, 0, bytes.length);
            return;
        }
        for (final Method method : type.getMethods())
        {
            if (method.getName().equals(name) && method.getParameterCount() == 1)
            {
                final Class<?> parameter = method.getParameterTypes()[0];
                if (parameter == String.class || parameter == CharSequence.class)
                {
                    type.getMethod(name, String.class).invoke(encoder, value);
                }
                else if (parameter == long.class)
                {
                    method.invoke(encoder, Long.parseLong(value));
                }
                else if (parameter == int.class)
                {
                    method.invoke(encoder, Integer.parseInt(value));
                }
                else if (parameter == byte.class)
                {
                    method.invoke(encoder, Byte.parseByte(value));
                }
                else
                {
                    method.invoke(encoder, parameter.getMethod("get", int.class).invoke(null, Integer.parseInt(value)));
                }
                return;
            }
        }
        throw new IllegalArgumentException(type + " has no " + name);
    }

    private static String decode(final String[] words) throws Exception
    {
        final Class<?> type = Class.forName(PACKAGE + words[1] + "Decoder");
        final Object decoder = type.getConstructor().newInstance();
        final UnsafeBuffer buffer = new UnsafeBuffer(HEX.parseHex(words[2]));
        final MessageHeaderDecoder header = new MessageHeaderDecoder().wrap(buffer, 0);
        if (header.templateId() != (int)type.getField("TEMPLATE_ID").get(null) || header.schemaId() != 101)
        {
            throw new IllegalArgumentException(words[1] + " has another template or schema");
        }
        type.getMethod("wrap", DirectBuffer.class, int.class, int.class, int.class)
            .invoke(decoder, buffer, 8, header.blockLength(), header.version());
        final StringBuilder text = new StringBuilder();
        for (int i = 3; i < words.length; i++)
        {
            text.append(i > 3 ? "\t" : "").append(get(type, decoder, words[i]));
        }
        final int length = 8 + (int)type.getMethod("encodedLength").invoke(decoder);
        if (length != buffer.capacity())
        {
            throw new IllegalArgumentException(words[1] + " was read to " + length + " of " + buffer.capacity());
        }
        return text.toString();
    }

    private static Object get(final Class<?> type, final Object decoder, final String name) throws Exception
    {
        if (name.endsWith(":hex"))
        {
            final String field = name.substring(0, name.length() - 4);
            final byte[] bytes = new byte[(int)type.getMethod(field + "Length").invoke(decoder)];
            final String getter = "get" + field.substring(0, 1).toUpperCase() + field.substring(1);
            type.getMethod(getter, byte[].class, int.class, int.class).invoke(decoder, bytes, 0, bytes.length);
            return HEX.formatHex(bytes);
        }
        final Object value = type.getMethod(name).invoke(decoder);
        return value instanceof Enum ? value.getClass().getMethod("value").invoke(value) : value;
    }
}
