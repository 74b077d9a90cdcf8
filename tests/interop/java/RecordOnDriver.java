import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeron.archive.Archive;
import io.aeron.archive.ArchiveThreadingMode;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.codecs.SourceLocation;
import io.aeron.archive.status.RecordingPos;
import io.aeron.logbuffer.FragmentHandler;
import java.io.File;
import java.util.zip.CRC32;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.CountersReader;

/**
 * Records streams with Aeron Archive, its own or (without a directory) one that runs, on a driver that runs already, replays them, and prints for each the checksum of what was sent
 * and of what was replayed. The arguments behind the count are triples: the publication's channel, the recorded channel with
 * "local " or "remote " before it, and the channel of the replay.
 */
public class RecordOnDriver
{
    public static void main(final String[] args) throws Exception
    {
        final Archive.Context context = new Archive.Context()
            .aeronDirectoryName(args[0])
            .archiveDir(new File(args[1]))
            .segmentFileLength(128 * 1024)
            .threadingMode(ArchiveThreadingMode.SHARED)
            .controlChannel("aeron:udp?endpoint=localhost:" + args[2])
            .recordingEventsEnabled(false)
            .replicationChannel("aeron:udp?endpoint=localhost:0");
        try (Archive ignored = args[1].isEmpty() ? null : Archive.launch(context);
            AeronArchive archive = AeronArchive.connect(new AeronArchive.Context()
                .aeronDirectoryName(args[0])
                .controlRequestChannel(context.localControlChannel())
                .controlRequestStreamId(context.localControlStreamId())
                .controlResponseChannel("aeron:ipc?term-length=64k")
                .controlResponseStreamId(777)))
        {
            for (int i = 4; i < args.length; i += 3)
            {
                final String[] recorded = args[i + 1].split(" ");
                recordAndReplay(archive, 1000 + i, Integer.parseInt(args[3]), args[i], recorded, args[i + 2]);
            }
        }
        System.exit(0);
    }

    private static void recordAndReplay(
        final AeronArchive archive,
        final int streamId,
        final int count,
        final String channel,
        final String[] recorded,
        final String replayChannel)
    {
        final Aeron aeron = archive.context().aeron();
        final SourceLocation location = recorded[0].equals("local") ? SourceLocation.LOCAL : SourceLocation.REMOTE;
        archive.startRecording(recorded[1], streamId, location);
        final CRC32 sent = new CRC32();
        final long length;
        final long recordingId;
        try (ExclusivePublication publication = aeron.addExclusivePublication(channel, streamId))
        {
            send(publication, count, sent);
            length = publication.position();
            final CountersReader counters = aeron.countersReader();
            int counter = CountersReader.NULL_COUNTER_ID;
            while (counter == CountersReader.NULL_COUNTER_ID)
            {
                counter = RecordingPos.findCounterIdBySession(counters, publication.sessionId());
            }
            recordingId = RecordingPos.getRecordingId(counters, counter);
            while (counters.getCounterValue(counter) < length)
            {
                Thread.yield();
            }
        }
        archive.stopRecording(recorded[1], streamId);
        final CRC32 replayed = new CRC32();
        final int[] messages = new int[1];
        try (Subscription subscription = archive.replay(recordingId, 0, length, replayChannel, streamId))
        {
            final FragmentHandler handler = (buffer, offset, size, header) ->
            {
                update(replayed, buffer, offset, size);
                messages[0] += (header.flags() & 0x40) != 0 ? 1 : 0;
            };
            while (subscription.imageCount() == 0)
            {
                Thread.yield();
            }
            final Image image = subscription.imageAtIndex(0);
            while (image.position() < length)
            {
                if (image.poll(handler, 100) == 0)
                {
                    Thread.yield();
                }
            }
        }
        System.out.println(sent.getValue() + " " + replayed.getValue() + " " + messages[0]);
    }

    private static void send(final ExclusivePublication publication, final int count, final CRC32 sent)
    {
        final UnsafeBuffer buffer = new UnsafeBuffer(new byte[4096]);
        for (int number = 0; number < count; number++)
        {
            final int size = 8 + (int)(number * 37L % 3000);
            buffer.setMemory(0, size, (byte)number);
            buffer.putLong(0, number);
            while (publication.offer(buffer, 0, size) < 0)
            {
                Thread.yield();
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
