package attack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"atoll.dev/atoll/lab/bench/measure"
)

// Caller is the kind of peer that carries out an attack.
type Caller string

// The callers, by what they have.
const (
	Stranger Caller = "stranger" // the address of the gateway
	Agent    Caller = "agent"    // the certificate of one accepted Cluster
	Tenant   Caller = "tenant"   // edit rights in one namespace
	Person   Caller = "person"   // any credential of the hub's API
)

// Attack is one way to harm a hub.
type Attack struct {
	Name    string
	Caller  Caller
	Summary string
	// MaxGrowth is how much more resident memory the hub may have during the attack, in bytes.
	// 0 means defaultGrowth.
	MaxGrowth float64
	// run prepares the attack, attacks for that time, and returns what the hub answered.
	run func(ctx context.Context, t *Target, lasts time.Duration) (answer string, err error)
}

const (
	// defaultGrowth is about three quarters of what an idle hub has: garbage that the collector
	// has not returned yet counts as well.
	defaultGrowth = 300 << 20
	// maxTogetherGrowth is how much more memory all attacks at once may take.
	maxTogetherGrowth = 1 << 30
	// maxLatency is the 99th percentile that an administrator's requests may have.
	maxLatency = time.Second
)

// ErrSlow is why a hub did not hold that answered the administrator or an agent too late, and
// nothing else.
var ErrSlow = errors.New("the hub answers too late")

// Attacks lists every attack, by caller.
var Attacks = func() []Attack {
	var all []Attack
	for _, some := range [][]Attack{strangerAttacks, frameAttacks, rowAttacks, viewAttacks, tenantAttacks, personAttacks, pushAttacks} {
		all = append(all, some...)
	}
	return all
}()

// Result is what was observed during one attack.
type Result struct {
	Attack Attack
	// Answer of the hub, in a few words.
	Answer string
	// Latency is the 99th percentile of an administrator's requests, in seconds.
	Latency float64
	// Resident memory of the hub before the attack, and the most during it, in bytes.
	Before, Peak float64
	// Broken is why the hub did not hold; nil if it did.
	Broken error
}

// CombineAttacks returns the attack of carrying out several at once, each with a Cluster and a
// namespace of its own.
func CombineAttacks(attacks []Attack) Attack {
	return Attack{Name: "together", Summary: "all attacks at once", MaxGrowth: maxTogetherGrowth, run: func(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
		var running errgroup.Group
		for _, a := range attacks {
			running.Go(func() error {
				if _, err := a.run(ctx, t.withAttackerName(a.Name), lasts); err != nil {
					return fmt.Errorf("%s: %w", a.Name, err)
				}
				return nil
			})
		}
		return fmt.Sprintf("%d attacks", len(attacks)), running.Wait()
	}}
}

// RunAttack carries out one attack for the given time, and measures the hub from outside.
func RunAttack(ctx context.Context, t *Target, a Attack, lasts time.Duration) Result {
	r := Result{Attack: a}
	watched, err := t.startObserver(ctx)
	if err == nil {
		r.Before, err = readHubResidentMemory(ctx, t.kube)
	}
	if err != nil {
		r.Broken = err
		return r
	}
	answer, err := a.run(ctx, t, lasts)
	latencies, peak, failed := watched.stopObserver()
	r.Answer, r.Latency, r.Peak = answer, measure.QuantileOf(latencies, 0.99), max(peak, r.Before)
	r.Broken = r.judgeRun(err, failed)
	return r
}

// judgeRun returns why the hub did not hold, or nil.
func (r Result) judgeRun(attacked, failed error) error {
	growth, most := r.Peak-r.Before, r.Attack.MaxGrowth
	if most == 0 {
		most = defaultGrowth
	}
	switch {
	case attacked != nil:
		return attacked
	case failed != nil:
		return fmt.Errorf("a request of the administrator failed during the attack: %w", failed)
	case growth > most:
		return fmt.Errorf("the hub's memory grew by %.0f MiB; %.0f MiB is the most", growth/(1<<20), most/(1<<20))
	case r.Latency > maxLatency.Seconds():
		return fmt.Errorf("%w: the administrator's requests took %.2f s (99th percentile); %s is the most", ErrSlow, r.Latency, maxLatency)
	}
	return nil
}
