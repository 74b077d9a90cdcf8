import io.aeron.Aeron;
import io.aeron.cluster.client.AeronCluster;
import org.agrona.concurrent.UnsafeBuffer;

/** Sends the numbers from one on to the cluster, one after the other, and prints the last sum that comes back. */
public class ClusterClient
{
    private static long replied = -1;
    private static long sum;

    public static void main(final String[] args) throws Exception
    {
        final long first = Long.parseLong(args[2]);
        final long count = Long.parseLong(args[3]);
        final AeronCluster.Context context = new AeronCluster.Context()
            .aeronDirectoryName(args[0])
            .ingressChannel("aeron:udp?term-length=64k")
            .ingressEndpoints(args[1])
            .egressChannel("aeron:udp?endpoint=localhost:0|term-length=64k")
            .egressListener((session, timestamp, buffer, offset, length, header) ->
            {
                replied = buffer.getLong(offset);
                sum = buffer.getLong(offset + 8);
            });
        try (AeronCluster cluster = AeronCluster.connect(context))
        {
            final UnsafeBuffer message = new UnsafeBuffer(new byte[8]);
            for (long number = first; number < first + count; number++)
            {
                message.putLong(0, number);
                while (cluster.offer(message, 0, 8) < 0)
                {
                    cluster.pollEgress();
                    Thread.yield();
                }
                while (replied != number)
                {
                    cluster.pollEgress();
                    Thread.yield();
                }
            }
        }
        System.out.println(sum);
    }
}
