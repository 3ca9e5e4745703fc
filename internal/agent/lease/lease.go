// Package lease lets one agent at a time apply to a member, by a Lease in the member itself.
//
// Contract:
//
//   - AcquireLease returns once the Lease is ours. It takes over a Lease that was not
//     renewed for its duration by this process's own clock (clocks are never compared),
//     and one that its holder returned. It also takes over one whose holder is
//     certainly dead: a process of this boot and process namespace that is gone, by
//     number and start time, or an earlier run of the same pod's container, of which
//     the kubelet never runs two. A killed agent therefore restarts without a wait,
//     and a holder that may live is always awaited.
//   - KeepRenewing renews it. It ends with ErrLost when another agent holds the Lease,
//     and returns the Lease when its context ends.
//   - IsHeld is true only while a renewal succeeded less than a duration ago. It may
//     be false while no other agent holds the Lease, never true while one does.
//   - Safe for concurrent use.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/pause"
)

// ErrLost: another agent took the Lease.
var ErrLost = errors.New("another agent took over this member")

// Name of the Lease.
const Name = "atoll-agent"

const (
	duration = 15 * time.Second
	renewal  = 5 * time.Second
	retry    = time.Second
)

// Lease of a member.
type Lease struct {
	client    rest.Interface
	namespace string
	identity  string
	log       *slog.Logger
	// answers is called at each renewal with the member's error, or nil.
	answers func(error)

	mu      sync.Mutex
	renewed time.Time
	lost    bool
}

// New returns the Lease in a namespace, for a holder of the given identity (see
// Identity). answers is called at each renewal with the error of the member's API,
// or nil; it must not block.
func New(config *rest.Config, namespace, identity string, answers func(error), log *slog.Logger) (*Lease, error) {
	client, err := member.TypedClient(config, coordinationv1.GroupName)
	if err != nil {
		return nil, err
	}
	return &Lease{client: client, namespace: namespace, identity: identity, answers: answers, log: log}, nil
}

// IsHeld reports whether the Lease is surely ours now.
func (l *Lease) IsHeld() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lost && !l.renewed.IsZero() && time.Since(l.renewed) < duration
}

// ConfirmHeld reads from the member whether the Lease is ours.
func (l *Lease) ConfirmHeld(ctx context.Context) bool {
	if !l.IsHeld() {
		return false
	}
	now, err := l.get(ctx)
	return err == nil && holderIdentity(now) == l.identity && l.IsHeld()
}

// AcquireLease waits until the Lease is ours, or ctx ends. waits is called with the holder or
// error that is awaited, when that changes; it must not block.
func (l *Lease) AcquireLease(ctx context.Context, waits func(holder string, err error)) error {
	var seen sighting
	told := ""
	for {
		holder, err := l.tryAcquire(ctx, &seen)
		if holder == "" && err == nil {
			return nil
		}
		if holder != "" && told != holder {
			l.log.Info("another agent works on this member; waiting for its lease to end", "holder", holder, "lease", l.namespace+"/"+Name)
			told = holder
			waits(holder, nil)
		}
		if err != nil && !apierrors.IsConflict(err) && told != err.Error() {
			l.log.Warn("the lease cannot be taken; trying on", "lease", l.namespace+"/"+Name, "err", err)
			told = err.Error()
			waits("", err)
		}
		if !pause.WaitFor(ctx, retry) {
			return fmt.Errorf("wait for lease %s/%s in the member: %w", l.namespace, Name, ctx.Err())
		}
	}
}

// sighting is the version of the Lease that another holds, and since when it is the same.
type sighting struct {
	version string
	since   time.Time
}

// tryAcquire takes the Lease if it is free or has ended. It returns its holder otherwise.
func (l *Lease) tryAcquire(ctx context.Context, seen *sighting) (holder string, err error) {
	begin := time.Now()
	now, err := l.get(ctx)
	l.answers(err)
	if apierrors.IsNotFound(err) {
		return "", l.create(ctx, begin)
	}
	if err != nil {
		return "", err
	}
	if now.ResourceVersion != seen.version {
		*seen = sighting{now.ResourceVersion, time.Now()}
	}
	holder = holderIdentity(now)
	if holder == "" || holder == l.identity || time.Since(seen.since) > duration || isHolderDead(holder) {
		return "", l.writeHolder(ctx, now, begin)
	}
	return holder, nil
}

// KeepRenewing renews the Lease until ctx ends or another agent has it.
func (l *Lease) KeepRenewing(ctx context.Context) error {
	for pause.WaitFor(ctx, l.nextRenewal()) {
		begin := time.Now()
		now, err := l.get(ctx)
		if err == nil {
			if who := holderIdentity(now); who != l.identity && who != "" {
				l.mu.Lock()
				l.lost = true
				l.mu.Unlock()
				return fmt.Errorf("%w: %s holds lease %s/%s", ErrLost, who, l.namespace, Name)
			}
			err = l.writeHolder(ctx, now, begin)
		} else if apierrors.IsNotFound(err) {
			err = l.create(ctx, begin)
		}
		if ctx.Err() == nil {
			l.answers(err)
		}
	}
	l.releaseLease(context.WithoutCancel(ctx))
	return nil
}

// nextRenewal is soon after a renewal that failed.
func (l *Lease) nextRenewal() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.renewed) < renewal {
		return renewal - time.Since(l.renewed)
	}
	return retry
}

func (l *Lease) releaseLease(ctx context.Context) {
	now, err := l.get(ctx)
	if err != nil || holderIdentity(now) != l.identity {
		return
	}
	l.mu.Lock()
	l.lost = true // before another one may have it
	l.mu.Unlock()
	now.Spec.HolderIdentity = ptr.To("")
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := l.client.Put().Namespace(l.namespace).Resource("leases").Name(Name).Body(now).Do(ctx).Error(); err != nil {
		l.log.Info("the lease was not given back; the next agent waits until it ends", "err", err)
	}
}

func (l *Lease) get(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, renewal)
	defer cancel()
	var out coordinationv1.Lease
	err := l.client.Get().Namespace(l.namespace).Resource("leases").Name(Name).Do(ctx).Into(&out)
	return &out, err
}

func (l *Lease) create(ctx context.Context, begin time.Time) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: l.namespace}}
	l.fillSpec(lease)
	ctx, cancel := context.WithTimeout(ctx, renewal)
	defer cancel()
	err := l.client.Post().Namespace(l.namespace).Resource("leases").Body(lease).Do(ctx).Error()
	return l.recordRenewalUnlessError(err, begin)
}

// writeHolder takes over or renews the Lease, unless the Lease changed since it was read.
func (l *Lease) writeHolder(ctx context.Context, lease *coordinationv1.Lease, begin time.Time) error {
	if holderIdentity(lease) != l.identity {
		lease.Spec.AcquireTime = ptr.To(metav1.NowMicro())
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	l.fillSpec(lease)
	ctx, cancel := context.WithTimeout(ctx, renewal)
	defer cancel()
	err := l.client.Put().Namespace(l.namespace).Resource("leases").Name(Name).Body(lease).Do(ctx).Error()
	return l.recordRenewalUnlessError(err, begin)
}

func (l *Lease) fillSpec(lease *coordinationv1.Lease) {
	lease.Spec.HolderIdentity = &l.identity
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(duration / time.Second))
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
}

// recordRenewalUnlessError counts the Lease from before the request, when it was surely written later.
func (l *Lease) recordRenewalUnlessError(err error, begin time.Time) error {
	if err == nil {
		l.mu.Lock()
		l.renewed = begin
		l.mu.Unlock()
	}
	return err
}

func holderIdentity(l *coordinationv1.Lease) string { return ptr.Deref(l.Spec.HolderIdentity, "") }
