import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.Image;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.logbuffer.BufferClaim;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.zip.CRC32;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * One end of a stream after the other. A line of input names the end: "publish" or "receive", the Aeron directory, the channel, the
 * stream, how many messages, "exclusive" or "shared", and destinations, separated by tabs. A line of output answers it: how many
 * messages, their checksum, and for a receiver whether the stream ended.
 */
public class StreamEnd
{
    private static final int LARGEST = 8192;
    private static final long PATIENCE_NS = 30_000_000_000L;
    private static final Map<String, Aeron> CLIENTS = new HashMap<>();

    public static void main(final String[] args) throws Exception
    {
        final BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine())
        {
            try
            {
                final String[] words = line.split("\t");
                final Aeron aeron = CLIENTS.computeIfAbsent(
                    words[1], (directory) -> Aeron.connect(new Aeron.Context().aeronDirectoryName(directory)));
                System.out.println(words[0].equals("publish") ? publish(aeron, words) : receive(aeron, words));
            }
            catch (final Exception ex)
            {
                System.out.println(ex);
            }
            System.out.flush();
        }
        CLIENTS.values().forEach(Aeron::close);
    }

    private static String publish(final Aeron aeron, final String[] words)
    {
        final int streamId = Integer.parseInt(words[3]);
        final int count = Integer.parseInt(words[4]);
        final UnsafeBuffer buffer = new UnsafeBuffer(new byte[LARGEST]);
        final BufferClaim claim = new BufferClaim();
        final CRC32 checksum = new CRC32();
        try (Publication publication = words[5].equals("exclusive") ?
            aeron.addExclusivePublication(words[2], streamId) : aeron.addPublication(words[2], streamId))
        {
            for (int i = 6; i < words.length; i++)
            {
                publication.addDestination(words[i]);
            }
            await("connected", publication::isConnected);
            for (int number = 0; number < count; number++)
            {
                final int length = length(number);
                fill(buffer, number, length);
                if (number % 11 == 0)
                {
                    await("aborted", () -> publication.tryClaim(100, claim) > 0);
                    claim.abort();
                }
                if (number % 7 == 0 && length <= publication.maxPayloadLength())
                {
                    await("claimed", () -> publication.tryClaim(length, claim) > 0);
                    claim.buffer().putBytes(claim.offset(), buffer, 0, length);
                    claim.commit();
                }
                else
                {
                    await("offered", () -> publication.offer(buffer, 0, length) > 0);
                }
                update(checksum, buffer, 0, length);
            }
        }
        return count + " " + checksum.getValue();
    }

    private static String receive(final Aeron aeron, final String[] words)
    {
        final int count = Integer.parseInt(words[4]);
        final int[] received = new int[1];
        final CRC32 checksum = new CRC32();
        final FragmentAssembler assembler = new FragmentAssembler((buffer, offset, length, header) ->
        {
            update(checksum, new UnsafeBuffer(buffer, offset, length), 0, length);
            received[0]++;
        });
        try (Subscription subscription = aeron.addSubscription(words[2], Integer.parseInt(words[3])))
        {
            for (int i = 6; i < words.length; i++)
            {
                subscription.addDestination(words[i]);
            }
            await("message " + count, () -> subscription.poll(assembler, 10) == 0 && received[0] >= count);
            await("end", () -> subscription.poll(assembler, 10) == 0 &&
                subscription.images().stream().allMatch(Image::isEndOfStream));
        }
        return received[0] + " " + checksum.getValue() + " ended";
    }

    private static int length(final int number)
    {
        return (int)(number % 10 == 0 ? number * 997L % (LARGEST + 1) : number * 37L % 300);
    }

    private static void fill(final UnsafeBuffer buffer, final int number, final int length)
    {
        for (int i = 0; i < length; i++)
        {
            buffer.putByte(i, (byte)(number + i));
        }
    }

    private static void update(final CRC32 checksum, final UnsafeBuffer buffer, final int offset, final int length)
    {
        final byte[] bytes = new byte[length + Integer.BYTES];
        new UnsafeBuffer(bytes).putInt(0, length);
        buffer.getBytes(offset, bytes, Integer.BYTES, length);
        checksum.update(bytes);
    }

    private static void await(final String what, final BooleanSupplier condition)
    {
        final long deadline = System.nanoTime() + PATIENCE_NS;
        while (!condition.getAsBoolean())
        {
            if (System.nanoTime() - deadline > 0)
            {
                throw new IllegalStateException("not " + what + " in time");
            }
            Thread.yield();
        }
    }
}
