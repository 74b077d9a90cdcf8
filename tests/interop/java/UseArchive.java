import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeron.archive.Archive;
import io.aeron.archive.ArchiveThreadingMode;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.client.ArchiveException;
import io.aeron.archive.client.RecordingDescriptorConsumer;
import io.aeron.archive.client.ReplayParams;
import io.aeron.archive.codecs.SourceLocation;
import io.aeron.archive.status.RecordingPos;
import io.aeron.logbuffer.FragmentHandler;
import java.io.File;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.CountersReader;

/**
 * A client of an archive: records, lists, asks, replays, and does what is refused, and prints what it is answered.
 * Arguments: the driver's directory, the control channel, the response channel, the number of messages; and for a control run the
 * directory of an archive of the reference, which then runs in this program.
 */
public class UseArchive
{
    private static final String CHANNEL = "aeron:ipc?term-length=64k";
    private static final int STREAM_ID = 1001;

    public static void main(final String[] args) throws Exception
    {
        final String driver = args[0];
        if (args.length > 4)
        {
            Archive.launch(new Archive.Context()
                .aeronDirectoryName(driver)
                .archiveDir(new File(args[4]))
                .segmentFileLength(128 * 1024)
                .threadingMode(ArchiveThreadingMode.SHARED)
                .controlChannel(args[1].startsWith("aeron:udp") ? args[1] : "aeron:udp?endpoint=localhost:0")
                .recordingEventsEnabled(false)
                .replicationChannel("aeron:udp?endpoint=localhost:0"));
        }
        final AeronArchive.Context context = new AeronArchive.Context()
            .aeronDirectoryName(driver)
            .controlRequestChannel(args[1])
            .controlRequestStreamId(10)
            .controlResponseChannel(args[2])
            .recordingSignalConsumer((session, correlation, recording, subscription, position, signal) ->
                System.out.println("signal " + signal + " of " + recording + " at " + position));
        try (AeronArchive archive = AeronArchive.connect(context))
        {
            use(archive, Integer.parseInt(args[3]));
        }
        System.out.println("closed");
        System.exit(0);
    }

    private static void use(final AeronArchive archive, final int count) throws Exception
    {
        final Aeron aeron = archive.context().aeron();
        System.out.println("has an id: " + (archive.archiveId() != Aeron.NULL_VALUE));
        System.out.println("found " + list(archive) + " recordings");
        final long subscriptionId = archive.startRecording(CHANNEL, STREAM_ID, SourceLocation.LOCAL);
        refused("start twice", () -> archive.startRecording(CHANNEL, STREAM_ID, SourceLocation.LOCAL));
        final CRC32 sent = new CRC32();
        final long recordingId;
        final long half;
        final long end;
        try (ExclusivePublication publication = aeron.addExclusivePublication(CHANNEL, STREAM_ID))
        {
            send(publication, 0, count, sent);
            half = publication.position();
            final int counter = await(aeron.countersReader(), publication.sessionId(), half);
            recordingId = RecordingPos.getRecordingId(aeron.countersReader(), counter);
            System.out.println("source " + RecordingPos.getSourceIdentity(aeron.countersReader(), counter));
            System.out.println("active " + RecordingPos.isActive(aeron.countersReader(), counter, recordingId));
            System.out.println("recording " + recordingId + " at " + archive.getRecordingPosition(recordingId));
            System.out.println("stop position " + archive.getStopPosition(recordingId));
            System.out.println("maximum " + archive.getMaxRecordedPosition(recordingId));
            System.out.println("active " + list(archive));
            subscriptions(archive);
            System.out.println("so far " + (replay(archive, recordingId, 0, half) == sent.getValue()));

            try (Subscription following = archive.replay(
                recordingId, 0, AeronArchive.REPLAY_ALL_AND_FOLLOW, "aeron:ipc", 1002))
            {
                final CRC32 followed = new CRC32();
                final Image image = image(following);
                read(image, half, followed);
                send(publication, count, 2 * count, sent);
                end = publication.position();
                await(aeron.countersReader(), publication.sessionId(), end);
                read(image, end, followed);
                System.out.println("followed " + (followed.getValue() == sent.getValue()) + " " + image.position());
                archive.stopRecording(subscriptionId);
                while (!image.isClosed() && !image.isEndOfStream())
                {
                    Thread.sleep(1);
                }
                System.out.println("ended with the recording");
            }
            refused("stop twice", () -> archive.stopRecording(subscriptionId));
            System.out.println("stop again " + archive.tryStopRecording(CHANNEL, STREAM_ID));
            archive.checkForErrorResponse();
            System.out.println("by its session " + archive.findLastMatchingRecording(
                0, "aeron:ipc", STREAM_ID, publication.sessionId()));
            System.out.println("by another " + archive.findLastMatchingRecording(0, "aeron:ipc", STREAM_ID, 4711));
        }
        while (archive.getStopPosition(recordingId) != end)
        {
            Thread.sleep(1);
        }
        System.out.println("start " + archive.getStartPosition(recordingId) + " stop " + end);
        System.out.println("not active " + archive.getRecordingPosition(recordingId));
        System.out.println("stopped by identity " + archive.tryStopRecordingByIdentity(recordingId));
        System.out.println("stopped " + list(archive));
        System.out.println("all " + (replay(archive, recordingId, 0, end) == sent.getValue()));
        System.out.println("over UDP " + (replay(archive, recordingId, "aeron:udp?endpoint=localhost:" +
            (20_000 + (int)(ProcessHandle.current().pid() % 10_000)), 0, end) == sent.getValue()));
        System.out.println("from the middle " + (replay(archive, recordingId, 65536, end - 65536) != 0));
        bounded(archive, recordingId, half, end);
        System.out.println("for uri " + archive.listRecordingsForUri(0, 10, "ipc", STREAM_ID, UseArchive::show));
        System.out.println("for another uri " + archive.listRecordingsForUri(0, 10, "udp", STREAM_ID, UseArchive::show));
        System.out.println("one " + archive.listRecording(recordingId, UseArchive::show));
        System.out.println("no such " + archive.listRecording(4711, UseArchive::show));
        refused("unknown", () -> archive.getStopPosition(4711));
        refused("unknown replay", () -> archive.startReplay(4711, 0, 100, "aeron:ipc", 1002));
        refused("from the end", () -> archive.startReplay(recordingId, end, 100, "aeron:ipc", 1002));
        refused("odd", () -> archive.startReplay(recordingId, 17, 100, "aeron:ipc", 1002));
        refused("no frame", () -> archive.startReplay(recordingId, 32, 100, "aeron:ipc", 1002));
        refused("small reads", () -> archive.startReplay(
            recordingId, "aeron:ipc", 1002, new ReplayParams().position(0).length(100).fileIoMaxLength(64)));
        refused("bad channel", () -> archive.startRecording("aeron:nonsense", 5, SourceLocation.LOCAL));
        refused("extend another stream",
            () -> archive.extendRecording(recordingId, CHANNEL, 1007, SourceLocation.LOCAL, true));
        extend(archive, recordingId, end, sent);
    }

    /** A publication that begins where the recording ends continues it, and another one is refused later. */
    private static void extend(final AeronArchive archive, final long recordingId, final long end, final CRC32 sent)
        throws Exception
    {
        final Aeron aeron = archive.context().aeron();
        final int[] initialTermId = new int[1];
        archive.listRecording(recordingId, (a, b, c, d, e, f, g, initial, h, i, j, k, l, m, n, o) -> initialTermId[0] = initial);
        final int termId = initialTermId[0] + (int)(end / 65536);
        final String channel = CHANNEL + "|init-term-id=" + initialTermId[0] + "|term-id=" + termId + "|term-offset=" +
            (end % 65536);
        archive.extendRecording(recordingId, "aeron:ipc", STREAM_ID, SourceLocation.LOCAL, true);
        final long longer;
        try (ExclusivePublication publication = aeron.addExclusivePublication(channel, STREAM_ID))
        {
            send(publication, 0, 100, sent);
            longer = publication.position();
            await(aeron.countersReader(), publication.sessionId(), longer);
        }
        while (archive.getStopPosition(recordingId) != longer)
        {
            Thread.sleep(1);
        }
        System.out.println("extended to " + longer + " " + (replay(archive, recordingId, 0, longer) == sent.getValue()));
        archive.extendRecording(recordingId, "aeron:ipc", STREAM_ID, SourceLocation.LOCAL, true);
        try (ExclusivePublication ignored = aeron.addExclusivePublication(CHANNEL, STREAM_ID))
        {
            String error = null;
            while (error == null)
            {
                Thread.sleep(1);
                error = archive.pollForErrorResponse();
            }
            System.out.println("extended at another position: " + (error.length() > 0));
        }
        System.out.println("found " + list(archive) + " recordings");
        archive.updateChannel(recordingId, "aeron:udp?endpoint=localhost:5555|term-length=64k|alias=" + "a".repeat(500));
        System.out.println("found " + list(archive) + " recordings");
        archive.updateChannel(recordingId, "aeron:ipc?alias=b");
        System.out.println("found " + list(archive) + " recordings");
    }

    private interface Action
    {
        void run() throws Exception;
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

    private static int list(final AeronArchive archive)
    {
        return archive.listRecordings(0, 100, UseArchive::show);
    }

    private static void show(
        final long controlSessionId,
        final long correlationId,
        final long recordingId,
        final long startTimestamp,
        final long stopTimestamp,
        final long startPosition,
        final long stopPosition,
        final int initialTermId,
        final int segmentFileLength,
        final int termBufferLength,
        final int mtuLength,
        final int sessionId,
        final int streamId,
        final String strippedChannel,
        final String originalChannel,
        final String sourceIdentity)
    {
        System.out.println("  " + recordingId + " " + startPosition + " " + stopPosition + " " + (startTimestamp > 0) + " " +
            (stopTimestamp > 0) + " " + segmentFileLength + " " + termBufferLength + " " + mtuLength + " " + streamId + " " +
            strippedChannel + " " + originalChannel + " " + sourceIdentity);
    }

    private static void subscriptions(final AeronArchive archive)
    {
        final int found = archive.listRecordingSubscriptions(0, 5, "ipc", STREAM_ID, true,
            (session, correlation, subscription, stream, channel) ->
                System.out.println("  subscription " + stream + " " + channel));
        System.out.println("subscriptions " + found);
    }

    private static void bounded(final AeronArchive archive, final long recordingId, final long half, final long end)
        throws Exception
    {
        final Aeron aeron = archive.context().aeron();
        try (io.aeron.Counter limit = aeron.addCounter(1001, "limit of a replay"))
        {
            limit.setOrdered(half);
            try (Subscription subscription = archive.replay(recordingId, "aeron:ipc", 1003,
                new ReplayParams().position(0).length(Long.MAX_VALUE).boundingLimitCounterId(limit.id())))
            {
                final CRC32 crc = new CRC32();
                final Image image = image(subscription);
                read(image, half, crc);
                Thread.sleep(200);
                System.out.println("beyond the limit " + image.poll((buffer, offset, length, header) -> {}, 100));
                limit.setOrdered(end);
                read(image, end, crc);
                System.out.println("up to the end " + (image.position() == end));
            }
        }
        archive.stopAllReplays(recordingId);
    }

    private static int await(final CountersReader counters, final int sessionId, final long position) throws Exception
    {
        int counter = CountersReader.NULL_COUNTER_ID;
        while (counter == CountersReader.NULL_COUNTER_ID)
        {
            Thread.sleep(1);
            counter = RecordingPos.findCounterIdBySession(counters, sessionId);
        }
        while (counters.getCounterValue(counter) < position)
        {
            Thread.sleep(1);
        }
        return counter;
    }

    private static long replay(final AeronArchive archive, final long recordingId, final long position, final long length)
        throws Exception
    {
        return replay(archive, recordingId, "aeron:ipc", position, length);
    }

    private static long replay(
        final AeronArchive archive, final long recordingId, final String channel, final long position, final long length)
        throws Exception
    {
        final CRC32 crc = new CRC32();
        try (Subscription subscription = archive.replay(recordingId, position, length, channel, 1002))
        {
            final Image image = image(subscription);
            if (image.joinPosition() != position)
            {
                System.out.println("joined at " + image.joinPosition());
            }
            read(image, position + length, crc);
        }
        return crc.getValue();
    }

    private static Image image(final Subscription subscription) throws Exception
    {
        final long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (subscription.imageCount() == 0)
        {
            Thread.sleep(1);
            if (System.nanoTime() > deadline)
            {
                throw new IllegalStateException("no image");
            }
        }
        return subscription.imageAtIndex(0);
    }

    private static void read(final Image image, final long end, final CRC32 crc) throws Exception
    {
        final FragmentHandler handler = (buffer, offset, length, header) -> update(crc, buffer, offset, length);
        while (image.position() < end)
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

    private static void send(final ExclusivePublication publication, final int first, final int last, final CRC32 sent)
        throws Exception
    {
        final UnsafeBuffer buffer = new UnsafeBuffer(new byte[4096]);
        for (int number = first; number < last; number++)
        {
            final int size = 8 + (int)(number * 37L % 3000);
            buffer.setMemory(0, size, (byte)number);
            buffer.putLong(0, number);
            while (publication.offer(buffer, 0, size) < 0)
            {
                Thread.sleep(0, 100_000);
            }
            update(sent, buffer, 0, size);
        }
    }

    private static void update(final CRC32 crc, final DirectBuffer buffer, final int offset, final int length)
    {
        final byte[] bytes = new byte[length];
        buffer.getBytes(offset, bytes);
        crc.update(bytes);
    }
}
