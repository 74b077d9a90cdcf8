import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.archive.Archive;
import io.aeron.archive.ArchiveThreadingMode;
import io.aeron.archive.client.AeronArchive;
import io.aeron.cluster.ConsensusModule;
import io.aeron.cluster.codecs.CloseReason;
import io.aeron.cluster.service.ClientSession;
import io.aeron.cluster.service.Cluster;
import io.aeron.cluster.service.ClusteredService;
import io.aeron.cluster.service.ClusteredServiceContainer;
import io.aeron.logbuffer.Header;
import java.io.File;
import java.util.concurrent.TimeUnit;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.NoOpLock;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A node of Aeron Cluster on a driver that runs already; its service adds numbers up and replies with each sum. With the property
 * cluster.archive.runs the archive runs already, too.
 */
public class ClusterNode
{
    public static void main(final String[] args) throws Exception
    {
        final String aeronDirectory = args[0];
        final File folder = new File(args[1]);
        final int memberId = Integer.parseInt(args[2]);
        final String members = args[3];
        final String[] endpoints = members.split("\\|")[memberId].split(",");
        final long timeoutNs = TimeUnit.SECONDS.toNanos(Long.getLong("cluster.timeout", 5));

        final Archive.Context archive = new Archive.Context()
            .aeronDirectoryName(aeronDirectory)
            .archiveDir(new File(folder, "archive"))
            .segmentFileLength(1024 * 1024)
            .threadingMode(ArchiveThreadingMode.SHARED)
            .controlChannel("aeron:udp?endpoint=" + endpoints[5])
            .localControlChannel("aeron:ipc?term-length=64k")
            .recordingEventsEnabled(false)
            .replicationChannel("aeron:udp?endpoint=localhost:0");
        final AeronArchive.Context client = new AeronArchive.Context()
            .aeronDirectoryName(aeronDirectory)
            .lock(NoOpLock.INSTANCE)
            .controlRequestChannel(archive.localControlChannel())
            .controlRequestStreamId(archive.localControlStreamId())
            .controlResponseChannel(archive.localControlChannel());
        final ConsensusModule.Context consensus = new ConsensusModule.Context()
            .aeronDirectoryName(aeronDirectory)
            .clusterDir(new File(folder, "cluster"))
            .clusterMemberId(memberId)
            .clusterMembers(members)
            .ingressChannel("aeron:udp?term-length=64k")
            .logChannel("aeron:udp?term-length=256k|control-mode=manual|control=localhost:" + args[4])
            .replicationChannel("aeron:udp?endpoint=localhost:0")
            .leaderHeartbeatTimeoutNs(timeoutNs)
            .startupCanvassTimeoutNs(2 * timeoutNs)
            .archiveContext(client.clone());
        final ClusteredServiceContainer.Context container = new ClusteredServiceContainer.Context()
            .aeronDirectoryName(aeronDirectory)
            .clusterDir(new File(folder, "cluster"))
            .archiveContext(client.clone())
            .clusteredService(new Sums());

        if (!Boolean.getBoolean("cluster.archive.runs"))
        {
            Archive.launch(archive);
        }
        ConsensusModule.launch(consensus);
        ClusteredServiceContainer.launch(container);
        while (System.in.read() >= 0)
        {
            // The node runs until its input ends.
        }
        Runtime.getRuntime().halt(0);
    }

    private static final class Sums implements ClusteredService
    {
        private final UnsafeBuffer reply = new UnsafeBuffer(new byte[16]);
        private Cluster cluster;
        private long sum;

        public void onStart(final Cluster cluster, final Image snapshot)
        {
            this.cluster = cluster;
            while (snapshot != null && snapshot.poll((buffer, offset, length, header) -> sum = buffer.getLong(offset), 1) == 0)
            {
                cluster.idleStrategy().idle();
            }
            say("started with " + sum);
        }

        public void onSessionMessage(
            final ClientSession session,
            final long timestamp,
            final DirectBuffer buffer,
            final int offset,
            final int length,
            final Header header)
        {
            sum += buffer.getLong(offset);
            reply.putLong(0, buffer.getLong(offset));
            reply.putLong(8, sum);
            while (session != null && session.offer(reply, 0, 16) == io.aeron.Publication.BACK_PRESSURED)
            {
                cluster.idleStrategy().idle();
            }
        }

        public void onTakeSnapshot(final ExclusivePublication snapshot)
        {
            final UnsafeBuffer buffer = new UnsafeBuffer(new byte[8]);
            buffer.putLong(0, sum);
            while (snapshot.offer(buffer) < 0)
            {
                cluster.idleStrategy().idle();
            }
            say("snapshot of " + sum);
        }

        public void onRoleChange(final Cluster.Role role)
        {
            say("role " + role);
        }

        public void onSessionOpen(final ClientSession session, final long timestamp)
        {
        }

        public void onSessionClose(final ClientSession session, final long timestamp, final CloseReason reason)
        {
        }

        public void onTimerEvent(final long correlationId, final long timestamp)
        {
        }

        public void onTerminate(final Cluster cluster)
        {
            say("terminated");
        }

        private static void say(final String line)
        {
            System.out.println(line);
            System.out.flush();
        }
    }
}
