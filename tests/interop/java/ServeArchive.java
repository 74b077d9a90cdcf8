import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeron.archive.Archive;
import io.aeron.archive.ArchiveThreadingMode;
import io.aeron.archive.ArchivingMediaDriver;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.status.RecordingPos;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.CountersReader;

/**
 * An Aeron Archive on a directory, run by lines of standard input: "replay" prints a line for each recording, "record STREAM COUNT"
 * records messages and prints the recording's id, "extend ID COUNT" appends messages to one, "stop" ends in order.
 */
public class ServeArchive
{
    private static final long TIMEOUT_NS = 60_000_000_000L;

    public static void main(final String[] args) throws Exception
    {
        final File folder = new File(args[0]);
        final String aeronDirectory = args[1];
        final String control = "aeron:udp?endpoint=127.0.0.1:" + args[2];
        final MediaDriver.Context driver = new MediaDriver.Context()
            .aeronDirectoryName(aeronDirectory)
            .threadingMode(ThreadingMode.SHARED)
            .termBufferSparseFile(true);
        final Archive.Context context = new Archive.Context()
            .archiveDir(folder)
            .aeronDirectoryName(aeronDirectory)
            .segmentFileLength(128 * 1024)
            .threadingMode(ArchiveThreadingMode.SHARED)
            .controlChannel(control)
            .recordingEventsEnabled(false)
            .replicationChannel("aeron:udp?endpoint=127.0.0.1:0");
        try (ArchivingMediaDriver ignored = ArchivingMediaDriver.launch(driver, context);
            AeronArchive archive = AeronArchive.connect(new AeronArchive.Context()
                .aeronDirectoryName(aeronDirectory)
                .controlRequestChannel(context.localControlChannel())
                .controlRequestStreamId(context.localControlStreamId())
                .controlResponseChannel("aeron:ipc?term-length=64k")
                .controlResponseStreamId(777)))
        {
            System.out.println("started");
            serve(archive);
        }
        System.out.println("stopped");
        System.exit(0);
    }

    private static void serve(final AeronArchive archive) throws Exception
    {
        final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        String line = lines.readLine();
        while (line != null && !line.equals("stop"))
        {
            final String[] words = line.split(" ");
            if (words[0].equals("replay"))
            {
                replay(archive);
            }
            else
            {
                record(archive, words[0].equals("extend"), Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            }
            line = lines.readLine();
        }
    }

    private static void replay(final AeronArchive archive)
    {
        final List<long[]> recordings = new ArrayList<>();
        archive.listRecordings(0, Integer.MAX_VALUE,
            (session, correlation, id, startTime, stopTime, start, stop, initialTerm, segment, term, mtu, sessionId, streamId,
            stripped, original, source) -> recordings.add(new long[]{ id, stop - start }));
        for (final long[] recording : recordings)
        {
            final CRC32 crc = new CRC32();
            final long[] counts = new long[2];
            if (recording[1] > 0)
            {
                final Subscription subscription = archive.replay(
                    recording[0], AeronArchive.NULL_POSITION, recording[1], "aeron:ipc", 9000);
                while (subscription.imageCount() == 0)
                {
                    Thread.onSpinWait();
                }
                final Image image = subscription.imageAtIndex(0);
                final long end = image.joinPosition() + recording[1];
                while (image.position() < end)
                {
                    image.poll((buffer, offset, length, header) ->
                    {
                        final byte[] data = new byte[length];
                        buffer.getBytes(offset, data);
                        crc.update(data);
                        counts[0] += (header.flags() & 0x40) != 0 ? 1 : 0;
                    }, 100);
                }
                subscription.close();
            }
            System.out.println(recording[0] + " " + counts[0] + " " + crc.getValue());
        }
        System.out.println("replayed");
    }

    private static void record(final AeronArchive archive, final boolean extend, final int which, final int count)
        throws Exception
    {
        final Aeron aeron = archive.context().aeron();
        final String[] channel = { "aeron:ipc?term-length=64k" };
        final int[] stream = { which };
        if (extend)
        {
            archive.listRecording(which,
                (session, correlation, id, startTime, stopTime, start, stop, initialTerm, segment, term, mtu, sessionId,
                streamId, stripped, original, source) ->
                {
                    final io.aeron.ChannelUriStringBuilder uri = new io.aeron.ChannelUriStringBuilder().media("ipc")
                        .mtu(mtu).initialPosition(stop, initialTerm, term);
                    channel[0] = uri.build();
                    stream[0] = streamId;
                });
        }
        final ExclusivePublication publication = aeron.addExclusivePublication(channel[0], stream[0]);
        final String recorded = "aeron:ipc?session-id=" + publication.sessionId();
        if (extend)
        {
            archive.extendRecording(which, recorded, stream[0], io.aeron.archive.codecs.SourceLocation.LOCAL);
        }
        else
        {
            archive.startRecording(recorded, stream[0], io.aeron.archive.codecs.SourceLocation.LOCAL);
        }
        final UnsafeBuffer buffer = new UnsafeBuffer(new byte[1000]);
        for (int number = 0; number < count; number++)
        {
            buffer.putLong(0, number, ByteOrder.BIG_ENDIAN);
            while (publication.offer(buffer) < 0)
            {
                Thread.sleep(1);
            }
        }
        final CountersReader counters = aeron.countersReader();
        final int counter = RecordingPos.findCounterIdBySession(counters, publication.sessionId());
        final long id = RecordingPos.getRecordingId(counters, counter);
        while (counters.getCounterValue(counter) < publication.position())
        {
            Thread.sleep(1);
        }
        archive.stopRecording(recorded, stream[0]);
        publication.close();
        System.out.println(id);
    }
}
