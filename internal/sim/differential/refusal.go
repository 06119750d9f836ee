package differential

// What Redis 7.0 answers when it refuses a command. The texts with %s are formats.
// Later versions word the refusals of an ACL otherwise, and say whose right is missing;
// redislock reads none of them.
//
// A script sees the texts that are for it in the err field of what redis.pcall
// returns. redis.call raises them, as strings, with [InScript] behind, and so the
// client reads them if the script does not catch them.
const (
	// OOM is the refusal of a server whose memory is used up, under noeviction, the same
	// in scripts. It is for commands that may need memory ([NeedsMemory]), whatever they
	// would do. Memory is looked at when the script begins, and the refusal ends with the
	// script's first command that may write ([Writes]), whether or not it changed
	// anything, unless it was itself refused: a script that has begun to write may
	// finish. EVAL and EVALSHA are not refused.
	OOM = "OOM command not allowed when used memory > 'maxmemory'."

	// NoPermission is the refusal of a command, with its name in lower case, for a user
	// who lacks the right. An ACL is looked at before memory is, and what it refuses is
	// none of a script's writes.
	NoPermission = "NOPERM this user has no permissions to run the '%s' command"
	// NoPermissionInScript is the same in a script: a user needs the right there too.
	NoPermissionInScript = "ERR The user executing the script can't run this command or subcommand"

	// NoKey is the refusal of a command, EVAL and EVALSHA too, for one of its keys.
	NoKey = "NOPERM this user has no permissions to access one of the keys used as arguments"
	// NoKeyInScript is the same in a script.
	NoKeyInScript = "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"

	// NoChannel is the refusal of PUBLISH and SUBSCRIBE for the channel.
	NoChannel = "NOPERM this user has no permissions to access one of the channels used as arguments"
	// NoChannelInScript is the same in a script.
	NoChannelInScript = "ERR The user executing the script can't publish to the channel mentioned in the command"

	// InScript is what redis.call puts behind a text, of the script's hash and its line.
	InScript = " script: %s, on @user_script:%d."
)

// commands are those of our scripts, and of Redisson's, that change something.
var commands = map[string]struct{ needsMemory bool }{
	"DEL":     {false},
	"HDEL":    {false},
	"HINCRBY": {true},
	"HSET":    {true},
	"INCRBY":  {true},
	"PEXPIRE": {false},
	"SET":     {true},
	"ZADD":    {true},
	"ZREM":    {false},
}

// Writes reports whether a command of our scripts, or of Redisson's, may change a
// key. Its name is in upper case.
func Writes(command string) bool {
	_, ok := commands[command]
	return ok
}

// NeedsMemory reports whether a command of our scripts, or of Redisson's, is refused
// with [OOM]. Its name is in upper case.
func NeedsMemory(command string) bool { return commands[command].needsMemory }
