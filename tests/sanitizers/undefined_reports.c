/* Writes UndefinedBehaviorSanitizer's findings to the file that MAINSTEM_UNDEFINED_REPORTS names, one per line. Together with
 * AddressSanitizer, its runtime writes only to stderr, which a test may have captured. tools/sanitize.py preloads this
 * library after libasan. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef void current_report(const char **, const char **, const char **, unsigned *, unsigned *, char **);

void __ubsan_on_report(void) {
    const char *kind, *message, *file, *path = getenv("MAINSTEM_UNDEFINED_REPORTS");
    unsigned line, column;
    char *address, text[1024];
    int to;
    /* The runtime is loaded after this file, with the first module that needs it. */
    current_report *get = (current_report *)dlsym(RTLD_DEFAULT, "__ubsan_get_current_report_data");
    if (!path || !get) return;
    get(&kind, &message, &file, &line, &column, &address);
    int length = snprintf(text, sizeof text, "%s:%u:%u: %s: %s\n", file, line, column, kind, message);
    if (length >= (int)sizeof text) length = sizeof text - 1;
    if ((to = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600)) < 0) return;
    if (write(to, text, (size_t)length) != length) abort();
    close(to);
}
