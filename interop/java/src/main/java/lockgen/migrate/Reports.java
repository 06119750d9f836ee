package lockgen.migrate;

import java.time.LocalDate;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;
import org.springframework.scheduling.annotation.Scheduled;

/** A job under ShedLock, as docs/migration.md shows it. */
abstract class Reports {
    abstract void write(LocalDate day);

    @Scheduled(cron = "0 0 3 * * *")
    @SchedulerLock(name = "report", lockAtMostFor = "10m", lockAtLeastFor = "30s")
    public void report() {
        write(LocalDate.now());
    }
}
