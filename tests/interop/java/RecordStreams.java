import io.aeron.Aeron;
import io.aeron.Publication;
import io.aeron.archive.Archive;
import io.aeron.archive.ArchiveThreadingMode;
import io.aeron.archive.ArchivingMediaDriver;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.status.RecordingPos;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import java.io.File;
import java.nio.ByteOrder;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.CountersReader;

/** Records two streams with Aeron Archive: one that is stopped, and one whose archive ends without a word. */
public class RecordStreams
{
    private static final String CHANNEL = "aeron:ipc?term-length=64k";

    public static void main(final String[] args) throws Exception
    {
        final File folder = new File(args[0]);
        final int count = Integer.parseInt(args[1]);
        final String aeronDirectory = args[2];
        final int port = Integer.parseInt(args[3]);
        final String control = "aeron:udp?endpoint=127.0.0.1:" + port;
        final String events = "aeron:udp?control-mode=dynamic|control=127.0.0.1:" + (port + 1);

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
            .replicationChannel("aeron:udp?endpoint=127.0.0.1:0")
            .recordingEventsChannel(events);
        ArchivingMediaDriver.launch(driver, context);
        final AeronArchive archive = AeronArchive.connect(new AeronArchive.Context()
            .aeronDirectoryName(aeronDirectory)
            .controlRequestChannel(context.localControlChannel())
            .controlRequestStreamId(context.localControlStreamId())
            .controlResponseChannel("aeron:ipc?term-length=64k")
            .controlResponseStreamId(777)
            .recordingEventsChannel(events));

        final Publication stopped = archive.addRecordedExclusivePublication(CHANNEL, 1001);
        publish(archive.context().aeron(), stopped, count);
        archive.stopRecording(stopped);
        final Publication growing = archive.addRecordedExclusivePublication(CHANNEL, 1002);
        publish(archive.context().aeron(), growing, count);
        System.out.println(stopped.position() + " " + growing.position());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void publish(final Aeron aeron, final Publication publication, final int count) throws Exception
    {
        final UnsafeBuffer buffer = new UnsafeBuffer(new byte[4096]);
        for (int number = 0; number < count; number++)
        {
            final int length = 8 + (int)(number * 37L % 3000);
            buffer.putLong(0, number, ByteOrder.BIG_ENDIAN);
            for (int i = 8; i < length; i++)
            {
                buffer.putByte(i, (byte)(number + i));
            }
            while (publication.offer(buffer, 0, length) < 0)
            {
                Thread.sleep(1);
            }
        }
        final CountersReader counters = aeron.countersReader();
        final int counter = RecordingPos.findCounterIdBySession(counters, publication.sessionId());
        while (counters.getCounterValue(counter) < publication.position())
        {
            Thread.sleep(1);
        }
    }
}
