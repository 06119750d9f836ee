// Package sqllock is a lock backend on a SQL database, by database/sql alone:
// MySQL from 8.0, MariaDB from 10.5, PostgreSQL from 12 and SQLite from 3.35, with
// whatever driver the program has.
//
//	locks, err := sql.Open("pgx", dsn) // a pool of its own: see below
//	backend, err := sqllock.New(locks)
//	err = backend.Migrate(ctx)         // once; or run backend.DDL()
//	locker := lock.New(backend, nil)
//
// The Example of package enginetest runs this on PostgreSQL. It is in a module of its own, because
// this one requires no database driver.
//
// # Table
//
// A lock is a row: owner, expiry by the database's clock, and a version, the
// highest fencing token so far. One statement takes it if it is free, one frees it,
// one renews a hundred. All times are the database's, in µs since 1970 in UTC:
// no client's clock and no time zone counts. What can break exclusion is a jump of
// the database's clock, a primary that is replaced by one that lacks its last
// commits, and SQLite on a file system without locks.
//
// A process that has to wait takes its place in a queue in the row. A freed lock is kept for
// the processes that are ahead, some of which may be dead: half a second for each, two
// seconds at most. Then whoever asks first gets it. Without a [Notifier] one poller for each key and
// process reads the row: after 1 ms, then ever more seldom, and after 1 ms again when the lock has had
// another holder. The first in the queue so loses about a hundredth of its wait, 1 ms at least and
// 65 ms at most; a process with two or more ahead an eighth, 12 ms at least and 125 ms at most.
//
// An AcquireAll takes its free keys by one statement for each hundred (two on MySQL unless all were used before),
// and its release frees a hundred by one. It asks for all other keys, and for all keys of Advisory and
// RowLock, one after the other. It uses one connection at a time. While more than 8 acquires, or more than 8
// releases, are under way in a process, further ones share statements in this way, on 4 connections each.
// Where db has no bound (SetMaxOpenConns, before New), acquires that wait share 16 connections, and the
// pollers 32, however many keys are waited for. Every other statement opens a connection if none is idle:
// a bound also spares the server hundreds of acquires that begin at once.
//
// # Other kinds of lock
//
// Table has all kinds. Advisory has read-write locks on PostgreSQL, see below; otherwise it has
// mutexes only, as RowLock. Such a lock is a row of a second table, lockgen_locks_kinds, which says
// who is inside and who waits. One statement replaces it, if nobody else has done so
// since it was read: else the process reads it and tries again. A process that leaves also writes
// whose turn is next. The waiter learns that by the [Notifier], or by a poller. A process has one poller
// for each key. It reads the row after 5 ms and then ever more seldom, 50 ms apart at most.
//
// If a mutex and another kind of lock are asked for on one key, the second gets
// driver.ErrConflict; a mutex gets it for 2.5 s after the other was used. This may go unnoticed
// if both are asked for at the same moment, or one of them by Advisory or RowLock.
//
// # Advisory and RowLock
//
// They exclude clients that do not know of the table. A session of the database, on
// a connection that is dedicated to one lock, holds the lock that such clients know;
// then it takes the row, which gives what Table promises among users of sqllock.
// A process waits in the server's own queue, and gets its turn there like any foreign
// client. A Backend waits in 16 queues at a time, and with less than half of the connections
// that SetMaxOpenConns allows; beyond that its waiters try now and then. The server ends a wait
// after 50 s (for a row of MySQL after innodb_lock_wait_timeout). The process then waits anew, at
// the end of the queue. A process that gives up ends its session. One that is stopped (SIGSTOP)
// while it waits or holds keeps what the server has granted it until it goes on or its session
// ends, past its ttl, as every client of such locks does: all others wait, also those of sqllock
// with the same strategy.
//
// A process that finds the row taken by a process with Table waits in the row's queue. If a foreign client
// takes the lock meanwhile, the process's place in the queue holds up those of Table once, for half a second.
//
// A bounded *sql.DB (SetMaxOpenConns) must have room for all locks that are held or waited for at
// once: else nested calls, or those of an AcquireAll, each wait for a connection that another has,
// until their contexts end.
//
// A session that ends frees its lock at once, whoever has ended it. So against foreign
// clients all that is promised is that the holder hears of it (driver.ErrLost): within
// a third of its ttl, when its session is asked whether it still holds the lock; a
// third later if other sessions, asked with it, do not answer; and at the
// end of the lease if its own does not. Against users of sqllock the row stays until
// it expires.
//
// There must be no pooler in between that gives sessions to transactions (PgBouncer in
// transaction mode). The Backend looks for one before the first lock, and again after a lock was no
// longer in its session, and refuses it. It may not find one: others' traffic through the pooler can
// hide it, and so can a pool of one connection, which has no two sessions to compare.
// The server frees the lock of a client that vanished without a word when TCP gives up: set tcp_keepalives_idle (PostgreSQL), or wait_timeout (MySQL) above a
// third of the longest ttl. RowLock keeps a transaction open for as long as the lock
// is held, which holds up vacuum, and must not meet idle_in_transaction_session_timeout.
// Its transactions are READ COMMITTED, so that rows can be made beside the one it
// locks.
//
// How others take a lock:
//
//	Advisory, MySQL      SELECT GET_LOCK('<key>', 10)    if it is short and plain, see [MySQLName]; for
//	                     the whole server, whatever the schema
//	Advisory, PostgreSQL SELECT pg_advisory_lock(('x' || left(encode(sha256('<key>'), 'hex'), 16))::bit(64)::bigint);
//	                     pg_advisory_lock_shared to read
//	RowLock              INSERT the key into lockgen_locks_rows unless it is there; then, in a transaction,
//	                     SELECT 1 FROM lockgen_locks_rows WHERE name = '<key>' FOR UPDATE
//
// A FOR UPDATE that returns no row has locked nothing: Backend.Purge, which every
// process runs now and then, has removed it since. Then begin again with the INSERT.
//
// # Read-write locks of Advisory
//
// On PostgreSQL a reader holds the shared advisory lock, and a writer the exclusive one;
// the record of Table says the rest: until when each is inside, and the tokens. So
// Advisory's read-write locks exclude Table's on the same tables as well. A downgrade takes the
// shared lock before the exclusive one is freed. The server's queue is first come, first
// served. So a reader waits for all writers that came before it, foreign ones too; with Table
// it waits for one at most. And a downgrade lets in only the readers that came before the first
// waiting writer. A holder does not learn that others wait, so writers of one process follow each
// other for up to 20 ms. A process that dies while it waits keeps its place in the queue, before
// readers that come later, until it would be its turn or its 50 s are over: set
// client_connection_check_interval (PostgreSQL from 14) to have it end sooner.
//
// # Connections
//
// Acquires and releases take connections of db as they need them; Advisory and RowLock
// need one for each lock that is held or waited for, and three at least. Renewals keep one for
// themselves, so that the user's own traffic can't delay them. They take it from db at the first
// lock, and again when it is lost ([Options].Renewals gives them others). One statement renews a
// hundred mutexes, or one lock of another kind. While many of these are due, more connections help: all of
// Options.Renewals (32 if it has no bound), or else, with Table, up to 8 of db, fewer than half of what
// SetMaxOpenConns allows; on SQLite none. It is best to give New a *sql.DB of its own,
// which no other traffic delays. Let it keep as many connections as goroutines
// take locks at once (SetMaxIdleConns; two unless set): to dial one costs more
// than a lock. On MySQL connections must commit by themselves (autocommit=1, the default):
// without that no lock is granted.
//
// Durability counts: a server that answers before a commit is on disk
// (synchronous_commit=off, innodb_flush_log_at_trx_commit other than 1) may forget
// who holds a lock when it crashes, and let the next one in.
//
// On SQLite set a busy timeout and WAL (_pragma=busy_timeout(5000),
// _pragma=journal_mode(WAL)); all processes must be on one machine. A file has one
// writer at a time; statements of one Backend take turns on one connection, in order.
// In memory (":memory:") each connection has a database of its own: allow db one connection,
// by SetMaxOpenConns before New, or Locks finds no table.
//
// Through PgBouncer in transaction mode Table works if the driver prepares no
// statements: default_query_exec_mode=exec or simple_protocol in the data source of pgx.
//
// # Notifications
//
// With a Notifier, PostgreSQL tells waiters that it is their turn, in the statement
// that frees the lock. While the Notifier does not listen, waiters look once a second.
// On pgx:
//
//	type notifier string // a data source name
//
//	func (n notifier) Listen(ctx context.Context, channel string, ready func(), notice func(string)) error {
//		conn, err := pgx.Connect(ctx, string(n))
//		if err != nil {
//			return err
//		}
//		defer conn.Close(context.WithoutCancel(ctx))
//		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
//			return err
//		}
//		ready()
//		for {
//			n, err := conn.WaitForNotification(ctx)
//			if err != nil {
//				return err
//			}
//			notice(n.Payload)
//		}
//	}
//
// # Notes
//
// With strategy Table, what processes tell each other (driver.Noter) are rows of the table of
// the other kinds, which expire: lockgen:process:<UUID of its owner ids> says who a process is,
// lockgen:wait:<key> what the holder of a lock waits for, and lockgen:order:<outer> > <inner>
// where locks were nested in this order. RowLock and Advisory keep none, so deadlocks between
// processes are found there by the database alone, or not at all.
//
// # Rights
//
// The least that the database's user needs, beside the right to connect:
//
//	MySQL       GRANT SELECT, INSERT, UPDATE, DELETE ON app.lockgen_locks TO app
//	PostgreSQL  GRANT SELECT, INSERT, UPDATE, DELETE ON lockgen_locks TO app
//	SQLite      to write the file and its folder
//
// Table and PostgreSQL's Advisory need the same on lockgen_locks_kinds. RowLock needs the same on lockgen_locks_rows. Advisory locks need no right.
// Migrate needs the right to create tables.
package sqllock
