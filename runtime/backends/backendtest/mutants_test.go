package backendtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockgen/lockgen/runtime/backends/backendtest"
)

// mutant is one way in which a backend, or its engine, may be wrong.
type mutant string

func (m mutant) is(other mutant) bool { return m == other }

const (
	saysHeldInWordsOnly mutant = "held is not a HeldError"
	ownedByClient       mutant = "an owner is a client, not an acquisition"
	racesWithItself     mutant = "checks and takes in two steps"
	neverExpires        mutant = "leases do not end"
	expiresEarly        mutant = "leases end before their deadline"
	deadlineOfReply     mutant = "deadlines count from the reply"
	renewsNothing       mutant = "a renewal sends nothing"
	renewalRecreates    mutant = "a renewal creates the lease again"
	renewalHidesLoss    mutant = "a renewal of a lost lease succeeds"
	renewalShortens     mutant = "a renewal may shorten"
	oneAnswerForAll     mutant = "all leases of a batch get one answer"
	releaseFreesAll     mutant = "a release ignores the owner"
	releaseFreesNothing mutant = "a release frees nothing"
	releaseHidesLoss    mutant = "a release of a lost lease succeeds"
	repeatsTokens       mutant = "tokens repeat"
	tokensOfClock       mutant = "tokens are the time of the clock"
	forgetsTokens       mutant = "tokens start at 1 again when a lock is removed"
	neverNotifies       mutant = "no notice is ever sent"
	ignoresContexts     mutant = "calls ignore their contexts"
	undoesNothing       mutant = "an undo does nothing"
	undoesOthers        mutant = "an undo ignores the owner"
	leavesNoTombstone   mutant = "an undo does not refuse late requests"
	refusesResends      mutant = "a resend is refused"
	countsResends       mutant = "a resend counts twice"
	hidesUnknown        mutant = "an unknown result is a plain error"
	countsUnanswered    mutant = "a renewal counts before its answer"
	silenceIsLoss       mutant = "no answer means lost"
	foldsCase           mutant = "keys ignore case"
	trimsSpace          mutant = "keys lose their trailing spaces"
	nestsKeys           mutant = "a key locks all keys below it"
	cutsKeys            mutant = "long keys are cut"
	refusesVaguely      mutant = "long keys are refused with a plain error"
	overwritesConflicts mutant = "data that is not a lock is overwritten"
	takesAnyTTL         mutant = "any ttl is accepted"
	closedVaguely       mutant = "a closed backend refuses with a plain error"
	closeLeaks          mutant = "close leaves a goroutine"
	closeHangs          mutant = "close waits for the engine"
	closeKeepsCalls     mutant = "close does not end the calls under way"
	leaksWaiters        mutant = "each wait leaves a goroutine"
	staysSubscribed     mutant = "subscriptions are never closed"
	recallsNobody       mutant = "an idle lease is never recalled"
	goroutinePerHold    mutant = "each hold has a goroutine"
	goroutinePerRenewal mutant = "each renewal has a goroutine"

	// Mutants of the harness, which must not declare missing what the backend has.
	deniesWakeUp  mutant = "notices are declared missing, but are sent"
	deniesLapse   mutant = "leases are declared to last, but end"
	deniesFlat    mutant = "holds are declared to have goroutines, but have none"
	deniesKeys    mutant = "keys are declared refused, but are accepted"
	deniesFaults  mutant = "faults are declared missing, but are there"
	lacksFaults   mutant = "faults are missing without a declaration"
	lacksReason   mutant = "a declaration has no reason"
	seesNothing   mutant = "leftovers are never found"
	allowsLongTTL mutant = "the longest ttl is declared shorter than it is"
)

// caughtBy names the checks that must each catch the mutant. Other checks may catch it too.
var caughtBy = map[mutant][]string{
	saysHeldInWordsOnly: {"Exclusion/OneOwner"},
	ownedByClient:       {"Exclusion/SameClient"},
	racesWithItself:     {"Exclusion/Race", "Exclusion/Crossing"},
	neverExpires:        {"Expiry/InTime", "Expiry/DeadClient"},
	expiresEarly:        {"Expiry/InTime", "Expiry/HolderHearsFirst"},
	deadlineOfReply:     {"Expiry/DeadlineOfAcquire", "Expiry/DeadlineOfRenewal"},
	renewsNothing:       {"Renewal/KeepsTheLease"},
	renewalRecreates:    {"Renewal/AfterRelease", "Renewal/AfterRemoval", "Replies/LateRenewal"},
	renewalHidesLoss:    {"Renewal/AfterRelease", "Renewal/AfterExpiry", "Renewal/LockerHearsOfRemoval"},
	renewalShortens:     {"Renewal/NeverShortens"},
	oneAnswerForAll:     {"Renewal/Batch"},
	releaseFreesAll:     {"Release/Successor", "Replies/LateRelease"},
	releaseFreesNothing: {"Exclusion/OneOwner", "Release/CancelledMethod", "Release/Panic"},
	releaseHidesLoss:    {"Release/Removed", "Release/AfterExpiry", "Release/LockerLoss"},
	repeatsTokens:       {"Fencing/Rise", "Fencing/Lockers"},
	tokensOfClock:       {"Fencing/Blocks"},
	forgetsTokens:       {"Fencing/AfterRemoval"},
	neverNotifies:       {"Waiting/Notice", "Waiting/WakeUp"},
	ignoresContexts:     {"Cancellation/Hung", "Cancellation/HungFromTheStart", "Cancellation/AtRandomHung"},
	undoesNothing:       {"Replies/Undo", "Replies/LostAcquire", "Replies/LockerUndoes", "Cancellation/AtRandomHung"},
	undoesOthers:        {"Replies/Undo", "Replies/UndoAfterNext", "Replies/UndoBesideNext"},
	leavesNoTombstone:   {"Replies/LateAcquire"},
	refusesResends:      {"Replies/Resend"},
	countsResends:       {"Replies/Resend"},
	hidesUnknown:        {"Replies/LostAcquire"},
	countsUnanswered:    {"Replies/LostRenewal"},
	silenceIsLoss:       {"Replies/LostRenewal", "Cancellation/Hung"},
	foldsCase:           {"Keys/Distinct"},
	trimsSpace:          {"Keys/Distinct", "Keys/AllBytes"},
	nestsKeys:           {"Keys/Prefixes"},
	cutsKeys:            {"Keys/Length"},
	refusesVaguely:      {"Keys/Length"},
	overwritesConflicts: {"Keys/Conflict"},
	takesAnyTTL:         {"Kinds/TTL"},
	closedVaguely:       {"Close/Backend"},
	closeLeaks:          {"Close/Goroutines"},
	closeHangs:          {"Close/Hung"},
	closeKeepsCalls:     {"Close/EndsCalls"},
	leaksWaiters:        {"Close/Goroutines", "Leaks/Goroutines"},
	staysSubscribed:     {"Leaks/Engine"},
	recallsNobody:       {"Kinds/Sticky"},
	goroutinePerHold:    {"Holds/Goroutines"},
	goroutinePerRenewal: {"Holds/Goroutines"},

	deniesWakeUp:  {"Waiting/Notice"},
	deniesLapse:   {"Expiry/InTime"},
	deniesFlat:    {"Holds/Goroutines"},
	deniesKeys:    {"Keys/Distinct"},
	deniesFaults:  {""},
	lacksFaults:   {""},
	lacksReason:   {""},
	seesNothing:   {"Leaks/Engine"},
	allowsLongTTL: {"Kinds/TTL"},
}

// misdeclare returns h, made wrong as m says if m is a mutant of the harness.
func (m mutant) misdeclare(h backendtest.Harness) backendtest.Harness {
	declare := func(a backendtest.Ability, reason string) {
		h.Cannot = map[backendtest.Ability]string{a: reason}
	}
	switch m {
	case deniesWakeUp:
		declare(backendtest.WakeUp, "a false declaration")
	case deniesLapse:
		declare(backendtest.Lapse, "a false declaration")
	case deniesFlat:
		declare(backendtest.FlatHolds, "a false declaration")
	case deniesKeys:
		h.Refuses = func(string) string { return "a false declaration" }
	case deniesFaults:
		declare(backendtest.NetworkFaults, "a false declaration")
	case lacksFaults:
		h.OpenFaulty = nil
	case lacksReason:
		declare(backendtest.LateRequests, "")
	case seesNothing:
		h.Leftovers = func(testing.TB, string) []string { return nil }
	case allowsLongTTL:
		h.MaxTTL = time.Minute
	}
	return h
}

// asMutant makes the test binary run one check on a mutant.
const asMutant = "BACKENDTEST_MUTANT"

func TestMain(m *testing.M) {
	if os.Getenv(asMutant) != "" {
		os.Exit(m.Run()) // mutants may leak goroutines
	}
	goleak.VerifyTestMain(m)
}

// The suite finds nothing wrong with an engine that is right.
func TestSuiteOnARightBackend(t *testing.T) {
	backendtest.Run(t, newEngine("").harness())
}

// TestSuiteCatchesMutants runs TestMutant in processes of their own.
func TestMutant(t *testing.T) {
	m := mutant(os.Getenv(asMutant))
	if m == "" {
		return
	}
	h := m.misdeclare(newEngine(m).harness())
	if os.Getenv(backendtest.StormEnv) != "" {
		h.TTL = ttl / 4 // more happens in the storm, because its times are in proportion to the TTL
	}
	backendtest.Run(t, h)
}

// The suite must fail on a wrong backend: each mutant is caught by the checks that
// caughtBy names.
func TestSuiteCatchesMutants(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	atOnce := make(chan struct{}, 8) // they wait more than they compute
	for m, checks := range caughtBy {
		for _, check := range checks {
			atOnce <- struct{}{}
			all.Go(func() {
				defer func() { <-atOnce }()
				t.Run(fmt.Sprintf("%s/%s", m, check), func(t *testing.T) { catches(t, self, m, check) })
			})
		}
	}
}

func catches(t *testing.T, self string, m mutant, check string) {
	failure := "--- FAIL: TestMutant/" + check
	behaviour, name, one := strings.Cut(check, "/")
	if !one {
		failure = "--- FAIL: TestMutant (" // Run refuses the harness before any check
	}
	cmd := exec.Command(self, "-test.run", "^TestMutant$/^"+behaviour+"$/^"+name+"$", "-test.timeout", "1m")
	cmd.Env = append(os.Environ(), asMutant+"="+string(m), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("%s passes a backend although %q:\n%s", check, m, out)
	case !strings.Contains(string(out), failure):
		t.Errorf("%s did not fail, but the run did: %v\n%s", check, err, out)
	}
}
