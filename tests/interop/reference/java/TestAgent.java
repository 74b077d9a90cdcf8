import io.aeron.Aeron;
import io.aeron.AeronCounters;
import io.aeron.Counter;
import io.aeron.archive.Archive;
import io.aeron.archive.ArchiveCounters;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.client.ArchiveException;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.description.type.TypeDescription;
import net.bytebuddy.dynamic.DynamicType;
import net.bytebuddy.matcher.ElementMatchers;
import net.bytebuddy.utility.JavaModule;
import org.agrona.IoUtil;
import org.agrona.concurrent.status.CountersReader;
import org.opentest4j.TestAbortedException;

/**
 * A Java agent. If the property {@code mainstem.archive} is a command, {@code Archive.launch} starts it with the settings
 * of the test's context, and {@code Archive.close} stops it. A context that holds objects of the test's process, which
 * another process cannot have, aborts the test.
 *
 * <p>The time limits of tests are multiplied by the property {@code mainstem.time.factor}: a Python process takes longer
 * to start than the C driver, and a test may start six.
 */
public final class TestAgent {
    private static final Map<Archive, TestAgent> RUNNING = Collections.synchronizedMap(new IdentityHashMap<>());
    private static final long STOP_S = 60;
    private static final ScheduledExecutorService TIMERS = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "test-limits");
        thread.setDaemon(true);
        return thread;
    });

    private final Process process;
    private final Thread reader;
    private final StringBuilder errors = new StringBuilder();
    private Aeron client;

    private TestAgent(Process process) {
        this.process = process;
        this.reader = new Thread(this::readErrors, "archive-errors");
        this.reader.setDaemon(true);
        this.reader.start();
    }

    public static void premain(String arguments, Instrumentation instrumentation) {
        AgentBuilder agent = new AgentBuilder.Default()
            .disableClassFormatChanges()
            .with(AgentBuilder.RedefinitionStrategy.RETRANSFORMATION) // this class has loaded Archive
            .with(new Reporter())
            .type(ElementMatchers.named("io.aeron.test.InterruptingTestCallback"))
            .transform((builder, type, loader, module, domain) -> builder
                .visit(Advice.to(Limit.class).on(ElementMatchers.named("beforeEach"))));
        if (System.getProperty("mainstem.archive") != null) {
            agent = agent
                .type(ElementMatchers.named("io.aeron.archive.Archive"))
                .transform((builder, type, loader, module, domain) -> builder
                    .visit(Advice.to(Launch.class).on(ElementMatchers.named("launch")
                        .and(ElementMatchers.takesArguments(1))))
                    .visit(Advice.to(Close.class).on(ElementMatchers.named("close"))));
        }
        agent.installOn(instrumentation);
    }

    /** Prints the classes that are transformed, for the harness, which expects them, and the errors. */
    private static final class Reporter extends AgentBuilder.Listener.Adapter {
        @Override
        public void onTransformation(
            TypeDescription type, ClassLoader loader, JavaModule module, boolean loaded, DynamicType dynamic) {
            System.out.println("TestAgent transformed " + type.getName());
        }

        @Override
        public void onError(String name, ClassLoader loader, JavaModule module, boolean loaded, Throwable error) {
            System.out.println("TestAgent cannot transform " + name + ": " + error);
        }
    }

    /** Replaces the timer that interrupts a test by a later one. */
    public static final class Limit {
        @Advice.OnMethodExit
        public static void exit(@Advice.FieldValue(value = "timer", readOnly = false) ScheduledFuture<?> timer) {
            timer = later(timer);
        }
    }

    public static ScheduledFuture<?> later(ScheduledFuture<?> timer) {
        if (timer == null || !timer.cancel(false)) {
            return timer;
        }
        long delay = timer.getDelay(TimeUnit.MILLISECONDS) * Long.getLong("mainstem.time.factor", 1);
        return TIMERS.schedule(Thread.currentThread()::interrupt, delay, TimeUnit.MILLISECONDS);
    }

    /** Replaces the body of {@code Archive.launch}. */
    public static final class Launch {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        public static Archive enter(@Advice.Argument(0) Archive.Context context) {
            return launch(context);
        }

        @Advice.OnMethodExit
        public static void exit(@Advice.Enter Archive launched, @Advice.Return(readOnly = false) Archive returned) {
            returned = launched;
        }
    }

    /** Replaces the body of {@code Archive.close}. */
    public static final class Close {
        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        public static boolean enter(@Advice.This Archive archive) {
            return close(archive);
        }
    }

    public static Archive launch(Archive.Context context) {
        abortIf(context.authenticatorSupplier() != null, "an authenticator");
        abortIf(context.authorisationServiceSupplier() != null, "an authorisation service");
        abortIf(context.recordChecksum() != null || context.replayChecksum() != null, "a checksum");
        abortIf(context.aeron() != null, "a client");
        File directory = context.archiveDir() != null ? context.archiveDir() : new File(context.archiveDirectoryName());
        try {
            directory = directory.getCanonicalFile();
            abortIf(context.markFileDir() != null && !context.markFileDir().getCanonicalFile().equals(directory),
                "a mark file elsewhere");
            if (context.deleteArchiveOnStart()) {
                IoUtil.delete(directory, false);
            }
            context.archiveDir(directory);
            // The archive asks the driver for an id, which other processes cannot read. A restart keeps its id.
            if (context.archiveId() == Aeron.NULL_VALUE) {
                context.archiveId(ThreadLocalRandom.current().nextLong(1, Long.MAX_VALUE));
            }
            TestAgent running = new TestAgent(start(context, directory));
            running.awaitReady();
            running.shareCounters(context);
            Archive archive = allocate(context);
            RUNNING.put(archive, running);
            return archive;
        } catch (IOException | ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void abortIf(boolean condition, String what) {
        if (condition) {
            throw new TestAbortedException("not applicable: the test gives the archive " + what + " of its own process");
        }
    }

    private static Process start(Archive.Context context, File directory) throws IOException {
        List<String> line = new ArrayList<>(List.of(System.getProperty("mainstem.archive").split(" ")));
        line.addAll(List.of("--archive-dir", directory.getPath(), "--dir", context.aeronDirectoryName(), "--insecure"));
        set(line, "id", context.archiveId());
        set(line, "control_channel", context.controlChannelEnabled() ? context.controlChannel() : "");
        set(line, "control_stream_id", context.controlStreamId());
        set(line, "local_control_channel", context.localControlChannel());
        set(line, "local_control_stream_id", context.localControlStreamId());
        set(line, "control_term_buffer_length", context.controlTermBufferLength());
        set(line, "control_term_buffer_sparse", context.controlTermBufferSparse());
        set(line, "control_mtu_length", context.controlMtuLength());
        set(line, "recording_events_channel", context.recordingEventsEnabled() ? context.recordingEventsChannel() : "");
        set(line, "recording_events_stream_id", context.recordingEventsStreamId());
        set(line, "segment_file_length", context.segmentFileLength());
        set(line, "replication_channel", context.replicationChannel());
        set(line, "file_io_max_length", context.fileIoMaxLength());
        set(line, "file_sync_level", context.fileSyncLevel());
        set(line, "low_storage_space_threshold", context.lowStorageSpaceThreshold());
        set(line, "max_concurrent_recordings", context.maxConcurrentRecordings());
        set(line, "max_concurrent_replays", context.maxConcurrentReplays());
        set(line, "connect_timeout_ns", context.connectTimeoutNs());
        set(line, "session_liveness_check_interval_ns", context.sessionLivenessCheckIntervalNs());
        set(line, "replay_linger_timeout_ns", context.replayLingerTimeoutNs());
        AeronArchive.Context client = context.archiveClientContext();
        if (client != null) {
            if (client.controlResponseChannel() != null) {
                set(line, "control_response_channel", client.controlResponseChannel());
            }
            set(line, "control_response_stream_id", client.controlResponseStreamId());
            set(line, "message_timeout_ns", client.messageTimeoutNs());
        }
        return new ProcessBuilder(line).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
    }

    private static void set(List<String> line, String name, Object value) {
        line.add("--set");
        line.add(name + "=" + (value == null ? "" : value));
    }

    private void readErrors() {
        try (BufferedReader lines = process.errorReader(StandardCharsets.UTF_8)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                synchronized (errors) {
                    errors.append(line).append('\n');
                    errors.notifyAll();
                }
            }
        } catch (IOException ignored) {
            // The process was killed.
        }
        synchronized (errors) {
            errors.append("\n(end)\n");
            errors.notifyAll();
        }
    }

    private void awaitReady() {
        synchronized (errors) {
            while (errors.indexOf(", requests on ") < 0) {
                if (errors.indexOf("\n(end)\n") >= 0) {
                    throw new ArchiveException("the archive did not start: " + errors);
                }
                try {
                    errors.wait();
                } catch (InterruptedException interrupted) {
                    process.destroyForcibly();
                    Thread.currentThread().interrupt();
                    throw new ArchiveException("interrupted while the archive started: " + errors);
                }
            }
        }
    }

    /** Let the test read the archive's counters where Java's archive leaves its client and what it allocated. */
    private void shareCounters(Archive.Context context) {
        client = Aeron.connect(new Aeron.Context().aeronDirectoryName(context.aeronDirectoryName()));
        context.aeron(client);
        CountersReader reader = client.countersReader();
        long id = context.archiveId();
        int sessions = ArchiveCounters.find(reader, AeronCounters.ARCHIVE_CONTROL_SESSIONS_TYPE_ID, id);
        int replays = ArchiveCounters.find(reader, AeronCounters.ARCHIVE_REPLAY_SESSION_COUNT_TYPE_ID, id);
        int recordings = ArchiveCounters.find(reader, AeronCounters.ARCHIVE_RECORDING_SESSION_COUNT_TYPE_ID, id);
        context.controlSessionsCounter(new Counter(reader, sessions));
        context.replaySessionCounter(new Counter(reader, replays));
        context.recordingSessionCounter(new Counter(reader, recordings));
    }

    private static Archive allocate(Archive.Context context) throws ReflectiveOperationException {
        Field field = Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe");
        field.setAccessible(true);
        Archive archive = (Archive) ((sun.misc.Unsafe) field.get(null)).allocateInstance(Archive.class);
        Field own = Archive.class.getDeclaredField("ctx");
        own.setAccessible(true);
        own.set(archive, context);
        return archive;
    }

    public static boolean close(Archive archive) {
        TestAgent running = RUNNING.remove(archive);
        if (running != null) {
            running.stop();
            archive.context().aeron(null);
        }
        return true;
    }

    private void stop() {
        boolean interrupted = Thread.interrupted();
        process.destroy();
        try {
            if (!process.waitFor(STOP_S, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the archive did not stop: " + errors);
            }
        } catch (InterruptedException again) {
            interrupted = true;
        } finally {
            process.destroyForcibly();
            client.close();
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
        System.out.print(errors);
    }
}
