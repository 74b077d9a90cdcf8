import io.aeron.security.Authenticator;
import io.aeron.security.AuthenticatorSupplier;
import io.aeron.security.SessionProxy;
import java.util.HashMap;
import java.util.Map;

/**
 * Accepts the credentials "admin:admin", and challenges "admin:adminC", to which "admin:CSadmin" is the response. Rejects all else.
 */
public class ChallengingAuthenticator implements AuthenticatorSupplier, Authenticator
{
    private static final byte[] CHALLENGE = "challenge!".getBytes();
    private final Map<Long, String> credentialsBySession = new HashMap<>();

    public Authenticator get()
    {
        return this;
    }

    public void onConnectRequest(final long sessionId, final byte[] encodedCredentials, final long nowMs)
    {
        credentialsBySession.put(sessionId, new String(encodedCredentials));
    }

    public void onChallengeResponse(final long sessionId, final byte[] encodedCredentials, final long nowMs)
    {
        credentialsBySession.put(sessionId, new String(encodedCredentials));
    }

    public void onConnectedSession(final SessionProxy session, final long nowMs)
    {
        final String credentials = credentialsBySession.get(session.sessionId());
        if ("admin:adminC".equals(credentials))
        {
            session.challenge(CHALLENGE);
        }
        else
        {
            decide(session, "admin:admin".equals(credentials));
        }
    }

    public void onChallengedSession(final SessionProxy session, final long nowMs)
    {
        final String credentials = credentialsBySession.get(session.sessionId());
        if (!"admin:adminC".equals(credentials))
        {
            decide(session, "admin:CSadmin".equals(credentials));
        }
    }

    private void decide(final SessionProxy session, final boolean isAccepted)
    {
        if (isAccepted)
        {
            session.authenticate(credentialsBySession.get(session.sessionId()).getBytes());
        }
        else
        {
            session.reject();
        }
    }
}
