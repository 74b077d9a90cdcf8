import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeron.archive.Archive;
import io.aeron.archive.ArchiveThreadingMode;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.client.ArchiveException;
import io.aeron.archive.client.ReplayParams;
import io.aeron.archive.codecs.RecordingSignal;
import io.aeron.archive.codecs.SourceLocation;
import io.aeron.archive.status.RecordingPos;
import io.aeron.logbuffer.FragmentHandler;
import java.io.File;
import java.util.zip.CRC32;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.CountersReader;

/**
 * A client of an archive that truncates and purges recordings, takes segments from them and gives them back, and replays over
 * response channels. It prints what it is answered. Arguments: the driver's directory, the control channel, the port of responses,
 * and for a control run the directory of an archive of the reference.
 */
public class ManageArchive
{
    private static final String CHANNEL = "aeron:ipc?term-length=64k";
    private static final int SEGMENT = 128 * 1024;
    private static final int FRAME = 1024;
    private static final int STREAM_ID = 1001;
    private static final int[] DELETED = new int[1];

    public static void main(final String[] args) throws Exception
    {
        final String driver = args[0];
        if (args.length > 3)
        {
            Archive.launch(new Archive.Context()
                .aeronDirectoryName(driver)
                .archiveDir(new File(args[3]))
                .segmentFileLength(SEGMENT)
                .threadingMode(ArchiveThreadingMode.SHARED)
                .controlChannel(args[1])
                .recordingEventsEnabled(false)
                .replicationChannel("aeron:udp?endpoint=localhost:0"));
        }
        final int port = Integer.parseInt(args[2]);
        final AeronArchive.Context context = new AeronArchive.Context()
            .aeronDirectoryName(driver)
            .controlRequestChannel(args[1])
            .controlRequestStreamId(10)
            .controlResponseChannel("aeron:udp?control-mode=response|control=localhost:" + port)
            .recordingSignalConsumer((session, correlation, recording, subscription, position, signal) ->
            {
                if (signal == RecordingSignal.DELETE)
                {
                    DELETED[0]++;
                    System.out.println("deleted files of " + recording + " " + position);
                }
            });
        try (AeronArchive archive = AeronArchive.connect(context))
        {
            final Aeron aeron = archive.context().aeron();
            truncate(archive, aeron);
            segments(archive, aeron);
            migrate(archive, aeron);
            response(archive, aeron, port + 1);
        }
        System.out.println("closed");
        System.exit(0);
    }

    private static void truncate(final AeronArchive archive, final Aeron aeron) throws Exception
    {
        final long end = 5 * SEGMENT + 10 * FRAME;
        final long id = record(archive, aeron, CHANNEL, end / FRAME, null);
        refused("truncate beyond", () -> archive.truncateRecording(id, end + FRAME));
        refused("truncate to an odd position", () -> archive.truncateRecording(id, end - 7));
        refused("truncate unknown", () -> archive.truncateRecording(4711, 0));
        final long position = 3 * SEGMENT + 7 * FRAME;
        System.out.println("truncated " + archive.truncateRecording(id, position));
        awaitDeleted(archive, 1);
        System.out.println("stop " + archive.getStopPosition(id));
        System.out.println("replayed " + replay(archive, id, 0, position, "aeron:ipc"));
        refused("replay behind it", () -> archive.startReplay(id, position, 1, "aeron:ipc", 1002));
        System.out.println("to a segment " + archive.truncateRecording(id, SEGMENT));
        awaitDeleted(archive, 2);
        System.out.println("replayed " + replay(archive, id, 0, SEGMENT, "aeron:ipc"));
        System.out.println("to nothing " + (archive.truncateRecording(id, 0) > 0));
        awaitDeleted(archive, 3);
        System.out.println("start " + archive.getStartPosition(id) + " stop " + archive.getStopPosition(id));
        System.out.println("purged " + archive.purgeRecording(id));
        awaitDeleted(archive, 4);
        refused("ask the purged", () -> archive.getStopPosition(id));
        refused("purge again", () -> archive.purgeRecording(id));
        System.out.println("listed " + archive.listRecording(id, (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) -> {}));
    }

    private static void segments(final AeronArchive archive, final Aeron aeron) throws Exception
    {
        final long end = 4 * SEGMENT + 3 * FRAME;
        final long id = record(archive, aeron, CHANNEL, end / FRAME, (recordingId) ->
        {
            refused("purge active", () -> archive.purgeRecording(recordingId));
            refused("truncate active", () -> archive.truncateRecording(recordingId, 0));
            System.out.println("purged of the active " + archive.purgeSegments(recordingId, SEGMENT));
            awaitDeleted(archive, 5);
        });
        System.out.println("start " + archive.getStartPosition(id));
        refused("detach within a segment", () -> archive.detachSegments(id, 2 * SEGMENT + FRAME));
        refused("detach nothing", () -> archive.detachSegments(id, SEGMENT));
        refused("detach beyond", () -> archive.detachSegments(id, 5 * SEGMENT));
        archive.detachSegments(id, 3 * SEGMENT);
        System.out.println("detached " + archive.getStartPosition(id));
        refused("replay the detached", () -> archive.startReplay(id, SEGMENT, FRAME, "aeron:ipc", 1002));
        System.out.println("attached " + archive.attachSegments(id) + " " + archive.getStartPosition(id));
        System.out.println("replayed " + replay(archive, id, SEGMENT, end - SEGMENT, "aeron:ipc"));
        archive.detachSegments(id, 2 * SEGMENT);
        System.out.println("deleted " + archive.deleteDetachedSegments(id));
        awaitDeleted(archive, 6);
        System.out.println("attached " + archive.attachSegments(id) + " " + archive.getStartPosition(id));
        System.out.println("purged " + archive.purgeSegments(id, 3 * SEGMENT));
        awaitDeleted(archive, 7);
        System.out.println("replayed " + replay(archive, id, 3 * SEGMENT, end - 3 * SEGMENT, "aeron:ipc"));
    }

    private static void migrate(final AeronArchive archive, final Aeron aeron) throws Exception
    {
        final long first = record(archive, aeron, CHANNEL + "|init-term-id=7|term-id=7|term-offset=0", 2 * SEGMENT / FRAME, null);
        final long second = record(archive, aeron,
            CHANNEL + "|init-term-id=7|term-id=11|term-offset=0", SEGMENT / FRAME, null);
        final long other = record(archive, aeron, CHANNEL, SEGMENT / FRAME, null);
        refused("migrate another stream", () -> archive.migrateSegments(other, second));
        System.out.println("migrated " + archive.migrateSegments(first, second));
        awaitDeleted(archive, 8);
        System.out.println("source " + archive.getStartPosition(first) + " " + archive.getStopPosition(first));
        System.out.println("target " + archive.getStartPosition(second) + " " + archive.getStopPosition(second));
        System.out.println("replayed " + replay(archive, second, 0, 3 * SEGMENT, "aeron:ipc"));
    }

    private static void response(final AeronArchive archive, final Aeron aeron, final int port) throws Exception
    {
        final long id = record(archive, aeron, CHANNEL, SEGMENT / FRAME, null);
        System.out.println("over a response channel " +
            replay(archive, id, 0, SEGMENT, "aeron:udp?control-mode=response|control=localhost:" + port));
    }

    private interface Action
    {
        void run() throws Exception;
    }

    private interface Meanwhile
    {
        void run(long recordingId) throws Exception;
    }

    private static void refused(final String what, final Action action) throws Exception
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

    private static void awaitDeleted(final AeronArchive archive, final int count) throws Exception
    {
        while (DELETED[0] < count)
        {
            archive.pollForRecordingSignals();
            Thread.sleep(1);
        }
    }

    private static long record(
        final AeronArchive archive, final Aeron aeron, final String channel, final long count, final Meanwhile meanwhile)
        throws Exception
    {
        archive.startRecording(channel, STREAM_ID, SourceLocation.LOCAL, true);
        final long recordingId;
        final long start;
        try (ExclusivePublication publication = aeron.addExclusivePublication(channel, STREAM_ID))
        {
            start = publication.position();
            final UnsafeBuffer buffer = new UnsafeBuffer(new byte[FRAME - 32]);
            for (long number = 0; number < count; number++)
            {
                buffer.putLong(0, start / FRAME + number);
                while (publication.offer(buffer) < 0)
                {
                    Thread.sleep(0, 100_000);
                }
            }
            final CountersReader counters = aeron.countersReader();
            int counter = CountersReader.NULL_COUNTER_ID;
            while (counter == CountersReader.NULL_COUNTER_ID || counters.getCounterValue(counter) < publication.position())
            {
                Thread.sleep(1);
                counter = RecordingPos.findCounterIdBySession(counters, publication.sessionId());
            }
            recordingId = RecordingPos.getRecordingId(counters, counter);
            if (meanwhile != null)
            {
                meanwhile.run(recordingId);
            }
        }
        while (archive.getStopPosition(recordingId) != start + count * FRAME)
        {
            Thread.sleep(1);
        }
        return recordingId;
    }

    /** Whether a replay has the messages of these positions, in order. */
    private static boolean replay(
        final AeronArchive archive, final long recordingId, final long position, final long length, final String channel)
        throws Exception
    {
        final long[] wrong = new long[1];
        final long[] next = { position / FRAME };
        try (Subscription subscription = archive.replay(
            recordingId, channel, 1002, new ReplayParams().position(position).length(length)))
        {
            while (subscription.imageCount() == 0)
            {
                Thread.sleep(1);
            }
            final Image image = subscription.imageAtIndex(0);
            final FragmentHandler handler = (buffer, offset, size, header) ->
                wrong[0] += buffer.getLong(offset) == next[0]++ && size == FRAME - 32 ? 0 : 1;
            while (image.position() < position + length)
            {
                if (image.poll(handler, 100) == 0)
                {
                    if (image.isClosed())
                    {
                        throw new IllegalStateException("closed at " + image.position());
                    }
                    Thread.sleep(1);
                }
            }
        }
        return wrong[0] == 0 && next[0] == (position + length) / FRAME;
    }
}
