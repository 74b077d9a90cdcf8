import io.aeron.Aeron;
import io.aeron.Subscription;
import io.aeron.archive.client.RecordingEventsAdapter;
import io.aeron.archive.client.RecordingEventsListener;

/**
 * Prints the recording events of an archive until a recording stops. Arguments: the driver's directory, the events' channel.
 */
public class ListenToRecordings implements RecordingEventsListener
{
    private boolean hasStopped;

    public static void main(final String[] args)
    {
        final ListenToRecordings listener = new ListenToRecordings();
        try (Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(args[0]));
            Subscription subscription = aeron.addSubscription(args[1], 30))
        {
            final RecordingEventsAdapter adapter = new RecordingEventsAdapter(listener, subscription, 10);
            while (!subscription.isConnected())
            {
                Thread.onSpinWait();
            }
            System.out.println("listening");
            while (!listener.hasStopped)
            {
                if (adapter.poll() == 0)
                {
                    Thread.yield();
                }
            }
        }
        System.exit(0);
    }

    public void onStart(
        final long recordingId,
        final long startPosition,
        final int sessionId,
        final int streamId,
        final String channel,
        final String sourceIdentity)
    {
        System.out.println("started " + recordingId + " " + startPosition + " " + sessionId + " " + streamId + " " +
            channel + " " + sourceIdentity);
    }

    public void onProgress(final long recordingId, final long startPosition, final long position)
    {
        System.out.println("progress " + recordingId + " " + startPosition + " " + position);
    }

    public void onStop(final long recordingId, final long startPosition, final long stopPosition)
    {
        System.out.println("stopped " + recordingId + " " + startPosition + " " + stopPosition);
        hasStopped = true;
    }
}
