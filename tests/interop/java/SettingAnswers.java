import io.aeron.driver.MediaDriver;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import org.agrona.ErrorHandler;

/**
 * Starts a media driver once for each line of input: its directory, then settings as name=value, separated by tabs. A line of output
 * answers it: "refused" and why, or "accepted" and the driver's configuration, as key=value separated by tabs.
 */
public class SettingAnswers
{
    public static void main(final String[] args) throws Exception
    {
        final BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        final ErrorHandler silent = (error) -> {};
        for (String line = input.readLine(); line != null; line = input.readLine())
        {
            final String[] words = line.split("\t", -1);
            final String[] settings = Arrays.copyOfRange(words, 1, words.length);
            for (final String setting : settings)
            {
                final int equals = setting.indexOf('=');
                System.setProperty(setting.substring(0, equals), setting.substring(equals + 1));
            }
            String answer;
            try
            {
                final MediaDriver.Context context = new MediaDriver.Context()
                    .aeronDirectoryName(words[0]).dirDeleteOnStart(true).dirDeleteOnShutdown(true).errorHandler(silent);
                try (MediaDriver driver = MediaDriver.launch(context))
                {
                    answer = "accepted" + driver.context().toString().replace("\n", "\t").replaceAll(",?\\t +", "\t");
                }
            }
            catch (final Throwable ex)
            {
                answer = "refused\t" + ex.toString().replace('\n', ' ').replace('\t', ' ');
            }
            for (final String setting : settings)
            {
                System.clearProperty(setting.substring(0, setting.indexOf('=')));
            }
            System.out.println("answer\t" + answer);
            System.out.flush();
        }
    }
}
