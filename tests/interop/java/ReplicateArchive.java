import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.client.ArchiveException;
import io.aeron.archive.client.ReplicationParams;
import io.aeron.archive.codecs.RecordingSignal;
import io.aeron.archive.codecs.SourceLocation;
import java.util.ArrayList;
import java.util.List;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A client that has one archive replicate from another. It prints what it is told. Arguments: the driver's directory, the control
 * channels of the source and of the archive that replicates, and a free port.
 */
public class ReplicateArchive
{
    private static final int STREAM_ID = 1001;
    private static final int FRAME = 1024;
    private static final List<String> EVENTS = new ArrayList<>();
    private static boolean hasEnded;
    private static long copy;
    private static Aeron aeron;
    private static AeronArchive source;
    private static AeronArchive archive;
    private static String sourceControl;

    public static void main(final String[] args) throws Exception
    {
        final String port = args[3];
        sourceControl = args[1];
        aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(args[0]));
        source = AeronArchive.connect(context(sourceControl));
        archive = AeronArchive.connect(context(args[2])
            .errorHandler((error) ->
            {
                if (error instanceof ArchiveException)
                {
                    EVENTS.add("error " + ((ArchiveException)error).errorCode());
                }
                else
                {
                    error.printStackTrace();
                }
            })
            .recordingSignalConsumer((session, correlation, recording, subscription, position, signal) ->
            {
                if (signal == RecordingSignal.REPLICATE)
                {
                    copy = recording;
                }
                if (signal == RecordingSignal.STOP)
                {
                    return;  // before or after the end of the replication
                }
                EVENTS.add(signal + " " + position + (subscription < 0 ? "" : " recorded"));
                hasEnded |= signal == RecordingSignal.REPLICATE_END;
            }));
        copies();
        follows();
        merges("localhost:" + port);
        refusals(args[2], port);
        over(Integer.parseInt(port) + 1);
        System.out.println("closed");
        System.exit(0);
    }

    private static AeronArchive.Context context(final String control)
    {
        return new AeronArchive.Context()
            .aeron(aeron)
            .ownsAeronClient(false)
            .controlRequestChannel(control)
            .controlResponseChannel("aeron:udp?endpoint=localhost:0");
    }

    private static void copies() throws Exception
    {
        final long id = record(600);
        await("all", replicate(id, new ReplicationParams()));
        final long whole = copy;
        System.out.println("stop " + archive.getStopPosition(whole));
        await("again", replicate(id, new ReplicationParams().dstRecordingId(whole)));
        await("a part", replicate(id, new ReplicationParams().stopPosition(100 * FRAME)));
        System.out.println("stop " + archive.getStopPosition(copy));
        await("the rest", replicate(id, new ReplicationParams().dstRecordingId(copy).channelTagId(41).subscriptionTagId(42)));
        System.out.println("stop " + archive.getStopPosition(copy));
        await("by session", replicate(id, new ReplicationParams().replicationSessionId(-4711).fileIoMaxLength(64 * 1024)));
        archive.listRecording(copy,
            (session, correlation, recording, startTime, stopTime, start, stop, initialTerm, segment, term, mtu, sessionId,
            streamId, stripped, original, identity) -> System.out.println("copy " + sessionId + " " + start + " " + stop + " " +
            segment + " " + term + " " + mtu + " " + streamId + " " + stripped + " " + original + " " + identity));
        archive.truncateRecording(copy, 0);
        await("into the empty", replicate(id, new ReplicationParams().dstRecordingId(copy)));
        System.out.println("stop " + archive.getStopPosition(copy));
        final long empty = record(1);
        source.truncateRecording(empty, 0);
        await("nothing", replicate(empty, new ReplicationParams()));
    }

    private static void follows() throws Exception
    {
        final ExclusivePublication publication = begin("aeron:ipc?term-length=64k", 50);
        final long id = recordingOf(source, publication);
        final long followed = replicate(id, new ReplicationParams());
        awaitCopied(publication);
        publish(publication, 50, 0);
        awaitCopied(publication);
        publication.close();
        await("until it stops", followed);
        System.out.println("stop " + archive.getStopPosition(copy));
        final ExclusivePublication other = begin("aeron:ipc?term-length=64k", 50);
        final long stopped = replicate(recordingOf(source, other), new ReplicationParams());
        awaitCopied(other);
        archive.stopReplication(stopped);
        await("stopped", stopped);
        System.out.println("tried again " + archive.tryStopReplication(stopped));
        publish(other, 10, 0);
        final long otherId = recordingOf(source, other);
        close(other, otherId);
        await("the rest", replicate(otherId, new ReplicationParams().dstRecordingId(copy)));
        System.out.println("stop " + archive.getStopPosition(copy));
    }

    private static void merges(final String control) throws Exception
    {
        final String channel = "aeron:udp?control-mode=dynamic|control=" + control + "|ssc=true|term-length=1m";
        final ExclusivePublication publication = begin(channel, 200);
        final long id = recordingOf(source, publication);
        final long merged = replicate(id, new ReplicationParams().liveDestination("aeron:udp?endpoint=localhost:0|control=" + control));
        while (!hasEnded)
        {
            publish(publication, 1, 2);
            archive.checkForErrorResponse();
        }
        EVENTS.replaceAll((event) -> event.startsWith("MERGE") ? "MERGE" : event);
        await("merged", merged);
        publish(publication, 200, 1);
        while (archive.getMaxRecordedPosition(copy) < publication.position())
        {
            Thread.sleep(1);
        }
        publication.close();
        while (archive.getStopPosition(copy) == AeronArchive.NULL_POSITION)
        {
            Thread.sleep(1);
        }
        System.out.println("all of the live stream " + (archive.getStopPosition(copy) == source.getStopPosition(id)));
    }

    private static void refusals(final String control, final String port) throws Exception
    {
        final long id = record(10);
        await("unknown source", replicate(4711, new ReplicationParams()));
        refused("unknown destination", () -> replicate(id, new ReplicationParams().dstRecordingId(4711)));
        await("another stream", replicate(id, new ReplicationParams().dstRecordingId(0)));
        await("short reads", replicate(id, new ReplicationParams().fileIoMaxLength(32)));
        await("no live source", replicate(id, new ReplicationParams().liveDestination("aeron:udp?endpoint=localhost:0")));
        final String response = "aeron:udp?control-mode=response|control=localhost:" + port;
        refused("response and live", () -> replicate(
            id, new ReplicationParams().replicationChannel(response).liveDestination("aeron:udp?endpoint=localhost:0")));
        refused("response and tags", () -> replicate(
            id, new ReplicationParams().replicationChannel(response).subscriptionTagId(1)));
        refused("stop unknown", () ->
        {
            archive.stopReplication(4711);
            return 0;
        });
        final ExclusivePublication publication = begin("aeron:ipc?term-length=64k", 50);
        final long active = recordingOf(source, publication);
        final long first = replicate(active, new ReplicationParams());
        awaitCopied(publication);
        refused("active destination", () -> replicate(active, new ReplicationParams().dstRecordingId(copy)));
        archive.stopReplication(first);
        await("stopped", first);
        close(publication, active);
        hasEnded = false;
        await("nobody there", archive.replicate(
            0, 10, "aeron:udp?endpoint=localhost:" + (Integer.parseInt(port) + 7), new ReplicationParams()));
    }

    private static void over(final int port) throws Exception
    {
        final long id = record(300);
        await("over response channels", replicate(id, new ReplicationParams()
            .replicationChannel("aeron:udp?control-mode=response|control=localhost:" + port)
            .srcResponseChannel("aeron:udp?control-mode=response|control=localhost:" + port)));
        System.out.println("stop " + archive.getStopPosition(copy));
    }

    private static long replicate(final long id, final ReplicationParams parameters)
    {
        hasEnded = false;
        return archive.replicate(id, 10, sourceControl, parameters);
    }

    private interface Action
    {
        long run();
    }

    private static void refused(final String what, final Action action)
    {
        try
        {
            action.run();
            System.out.println(what + ": not refused");
        }
        catch (final ArchiveException ex)
        {
            System.out.println(what + ": " + ex.errorCode());
        }
    }

    private static void await(final String what, final long replicationId) throws Exception
    {
        while (!hasEnded)
        {
            archive.checkForErrorResponse();
            Thread.sleep(1);
        }
        System.out.println(what + ": " + EVENTS);
        EVENTS.clear();
        while (archive.tryStopReplication(replicationId))
        {
            Thread.sleep(1);
        }
    }

    private static void awaitCopied(final ExclusivePublication publication) throws Exception
    {
        while (EVENTS.isEmpty() || archive.getMaxRecordedPosition(copy) < publication.position())
        {
            archive.checkForErrorResponse();
            Thread.sleep(1);
        }
    }

    private static ExclusivePublication begin(final String channel, final int count) throws Exception
    {
        source.startRecording(channel, STREAM_ID, SourceLocation.LOCAL, true);
        final ExclusivePublication publication = aeron.addExclusivePublication(channel, STREAM_ID);
        publish(publication, count, 0);
        final long id = recordingOf(source, publication);
        while (source.getRecordingPosition(id) < publication.position())
        {
            Thread.sleep(1);
        }
        return publication;
    }

    private static long recordingOf(final AeronArchive where, final ExclusivePublication publication) throws Exception
    {
        long id = Aeron.NULL_VALUE;
        while (id == Aeron.NULL_VALUE)
        {
            id = where.findLastMatchingRecording(0, "", STREAM_ID, publication.sessionId());
            Thread.sleep(1);
        }
        return id;
    }

    private static void publish(final ExclusivePublication publication, final int count, final int pause) throws Exception
    {
        final UnsafeBuffer buffer = new UnsafeBuffer(new byte[FRAME - 32]);
        for (int number = 0; number < count; number++)
        {
            buffer.putLong(0, publication.position());
            while (publication.offer(buffer) < 0)
            {
                Thread.sleep(0, 100_000);
            }
            Thread.sleep(pause);
        }
    }

    private static long record(final int count) throws Exception
    {
        final ExclusivePublication publication = begin("aeron:ipc?term-length=64k", count);
        final long id = recordingOf(source, publication);
        close(publication, id);
        return id;
    }

    private static void close(final ExclusivePublication publication, final long id) throws Exception
    {
        publication.close();
        while (source.getStopPosition(id) == AeronArchive.NULL_POSITION)
        {
            Thread.sleep(1);
        }
    }
}
