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
	saysHeldInWordsOnly mutant = "held is no HeldError"
	ownedByClient       mutant = "an owner is a client, not an acquisition"
	racesWithItself     mutant = "looks, and then takes"
	neverExpires        mutant = "leases do not end"
	expiresEarly        mutant = "leases end before their deadline"
	deadlineOfReply     mutant = "deadlines count from the reply"
	renewsNothing       mutant = "a renewal sends nothing"
	renewalRecreates    mutant = "a renewal makes the lease anew"
	renewalHidesLoss    mutant = "a renewal of what is lost succeeds"
	renewalShortens     mutant = "a renewal may shorten"
	oneAnswerForAll     mutant = "a batch has one answer"
	releaseFreesAll     mutant = "a release ignores the owner"
	releaseFreesNothing mutant = "a release frees nothing"
	releaseHidesLoss    mutant = "a release of what is lost succeeds"
	repeatsTokens       mutant = "tokens repeat"
	tokensOfClock       mutant = "tokens are the clock's"
	forgetsTokens       mutant = "tokens start anew with the lock"
	neverNotifies       mutant = "no notice ever comes"
	ignoresContexts     mutant = "calls ignore their contexts"
	undoesNothing       mutant = "an undo does nothing"
	undoesOthers        mutant = "an undo ignores the owner"
	leavesNoTombstone   mutant = "an undo does not mind who comes late"
	refusesResends      mutant = "a resend is refused"
	countsResends       mutant = "a resend counts twice"
	hidesUnknown        mutant = "an unknown outcome is a plain error"
	countsUnanswered    mutant = "a renewal counts before its answer"
	silenceIsLoss       mutant = "no answer means lost"
	foldsCase           mutant = "keys have no case"
	trimsSpace          mutant = "keys lose their last spaces"
	nestsKeys           mutant = "a key holds all below it"
	cutsKeys            mutant = "long keys are cut"
	refusesVaguely      mutant = "long keys are refused by a plain error"
	overwritesConflicts mutant = "what is no lock is overwritten"
	takesAnyTTL         mutant = "any ttl is taken"
	closedVaguely       mutant = "what is closed refuses by a plain error"
	closeLeaks          mutant = "close leaves a goroutine"
	closeHangs          mutant = "close waits for the engine"
	closeKeepsCalls     mutant = "calls under way outlast close"
	leaksWaiters        mutant = "each wait leaves a goroutine"
	staysSubscribed     mutant = "subscriptions stay"
	recallsNobody       mutant = "an idle owner is told of nobody who waits"
	goroutinePerHold    mutant = "each hold has a goroutine"
	goroutinePerRenewal mutant = "each renewal has a goroutine"

	// Of the harness, which must not declare missing what is there.
	deniesWakeUp  mutant = "notices are declared missing, and come"
	deniesLapse   mutant = "leases are declared to last, and end"
	deniesFlat    mutant = "holds are declared to have goroutines, and have none"
	deniesKeys    mutant = "keys are declared refused, and taken"
	deniesFaults  mutant = "faults are declared missing, and there"
	lacksFaults   mutant = "faults are missing without a word"
	lacksReason   mutant = "a declaration has no reason"
	seesNothing   mutant = "leftovers are never seen"
	allowsLongTTL mutant = "the longest ttl is declared shorter than it is"
)

// caughtBy names the checks of which each must catch the mutant. Others may.
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

// bend makes h wrong in the way of m, if that is of the harness.
func (m mutant) bend(h backendtest.Harness) backendtest.Harness {
	declare := func(a backendtest.Ability, reason string) {
		h.Cannot = map[backendtest.Ability]string{a: reason}
	}
	switch m {
	case deniesWakeUp:
		declare(backendtest.WakeUp, "so it says")
	case deniesLapse:
		declare(backendtest.Lapse, "so it says")
	case deniesFlat:
		declare(backendtest.FlatHolds, "so it says")
	case deniesKeys:
		h.Refuses = func(string) string { return "so it says" }
	case deniesFaults:
		declare(backendtest.NetworkFaults, "so it says")
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
		os.Exit(m.Run()) // what mutants leak is theirs
	}
	goleak.VerifyTestMain(m)
}

// The suite finds nothing wrong with an engine that is right.
func TestSuiteOnARightBackend(t *testing.T) {
	backendtest.Run(t, newEngine("").harness())
}

// TestMutant is what TestSuiteCatchesMutants runs in processes of their own.
func TestMutant(t *testing.T) {
	m := mutant(os.Getenv(asMutant))
	if m == "" {
		return
	}
	h := m.bend(newEngine(m).harness())
	if os.Getenv(backendtest.StormEnv) != "" {
		h.TTL = ttl / 4 // more comes of a storm: all that it draws is in proportion
	}
	backendtest.Run(t, h)
}

// A suite that passes a backend that is wrong is worth nothing: each mutant is
// caught by the checks that are there for it.
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
		failure = "--- FAIL: TestMutant (" // the harness is refused
	}
	cmd := exec.Command(self, "-test.run", "^TestMutant$/^"+behaviour+"$/^"+name+"$", "-test.timeout", "1m")
	cmd.Env = append(os.Environ(), asMutant+"="+string(m), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("%s passes a backend of which %q is true:\n%s", check, m, out)
	case !strings.Contains(string(out), failure):
		t.Errorf("%s did not fail: the run did: %v\n%s", check, err, out)
	}
}
