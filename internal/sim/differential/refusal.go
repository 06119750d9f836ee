package differential

// Texts of Redis 7.0 that refuse a command. The texts with %s are formats.
// Later versions have other texts for the refusals of an ACL, which say whose right is missing;
// redislock does not read them.
//
// A script gets its texts in the err field of the result of redis.pcall.
// redis.call raises them as strings, followed by [InScript]. The
// client gets them in this form if the script does not catch them.
const (
	// OOM is the refusal of a server without free memory under noeviction, also
	// in scripts. It applies to commands that may need memory ([NeedsMemory]), whatever their
	// effect would be. Redis checks the memory when a script begins. The refusals end with the
	// script's first command that may write ([Writes]) and is not itself refused, whether or not
	// it changes anything: a script that has begun to write may
	// finish. EVAL and EVALSHA are not refused.
	OOM = "OOM command not allowed when used memory > 'maxmemory'."

	// NoPermission is the refusal of a command, with its name in lower case, for a user
	// who lacks the right. Redis checks the ACL before the memory. A command that the ACL refuses
	// does not count as a write of the script.
	NoPermission = "NOPERM this user has no permissions to run the '%s' command"
	// NoPermissionInScript is the same in a script. A user needs the right there too.
	NoPermissionInScript = "ERR The user executing the script can't run this command or subcommand"

	// NoKey is the refusal of a command, including EVAL and EVALSHA, because of one of its keys.
	NoKey = "NOPERM this user has no permissions to access one of the keys used as arguments"
	// NoKeyInScript is the same in a script.
	NoKeyInScript = "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"

	// NoChannel is the refusal of PUBLISH and SUBSCRIBE because of the channel.
	NoChannel = "NOPERM this user has no permissions to access one of the channels used as arguments"
	// NoChannelInScript is the same in a script.
	NoChannelInScript = "ERR The user executing the script can't publish to the channel mentioned in the command"

	// InScript is the text that redis.call appends, with the script's hash and the line.
	InScript = " script: %s, on @user_script:%d."
)

// commands lists the commands of our scripts and of Redisson's that may change a key.
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

// Writes reports whether a command of our scripts or of Redisson's may change a
// key. The name must be in upper case.
func Writes(command string) bool {
	_, ok := commands[command]
	return ok
}

// NeedsMemory reports whether a command of our scripts or of Redisson's is refused
// with [OOM]. The name must be in upper case.
func NeedsMemory(command string) bool { return commands[command].needsMemory }
