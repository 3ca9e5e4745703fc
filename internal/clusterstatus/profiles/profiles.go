// Package profiles publishes the accepted clusters of a hub as ClusterProfiles, the inventory of
// Kubernetes' SIG Multicluster, in the namespace atoll-inventory.
//
// Contract: one Publisher for each hub writes, while its hub leads. A profile follows from the
// Cluster alone (ProfileOf, a pure function), and is written when that changes, never because a
// cluster is alive: a new cluster costs two writes, a change of its profile one. Writes are
// limited by pace.ProfileWrites, behind the hub's other work. A profile is deleted when its Cluster is
// gone or not accepted any more, or when HubSettings turn profiles off. Only profiles of that
// namespace with Atoll's label are ever touched. Changed or deleted profiles are corrected when
// the hub starts, and when their cluster changes. Run is called once, when the tables are synced.
// Memory for each cluster is 16 bytes and its name.
package profiles

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	multicluster "atoll.dev/atoll/api/multicluster/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/reconcile"
)

// page is the number of profiles in a read when the hub starts, and readAgain the wait after a
// failed read: an inventory for others ends no leadership.
const page, readAgain = 500, 5 * time.Second

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	List() []*v1alpha1.Cluster
	Subscribe(fn func(name string))
}

// Settings define whether clusters are published.
type Settings interface {
	PublishesProfiles() bool
	Subscribe(fn func(name string))
}

// Config of a Publisher. All but Log must be set.
type Config struct {
	Clusters Clusters
	Settings Settings
	// Client must not read from a cache.
	Client client.Client
	Hub    Hub
	// Log; nil: slog's default.
	Log *slog.Logger
}

// ProfilePublisher publishes ClusterProfiles. Make it with New.
type ProfilePublisher struct {
	Config
	limit *pace.Limiter
	loop  *reconcile.Loop[string] // by name

	mu        sync.Mutex
	published map[string]string // print by name
}

// New makes a Publisher and subscribes it to the tables.
func New(cfg Config) *ProfilePublisher {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	p := &ProfilePublisher{Config: cfg, limit: pace.ProfileWrites.NewLimiter(), published: map[string]string{}}
	p.loop = reconcile.New(reconcile.Options[string]{
		Name: "profiles", Reconcile: p.reconcileProfile,
		Failed: func(name string, err error) {
			if !apierrors.IsConflict(err) {
				p.Log.Warn("a cluster's profile is not published as it should be, trying again", "cluster", name, "err", err)
			}
		},
	})
	cfg.Clusters.Subscribe(p.loop.EnqueueNow)
	cfg.Settings.Subscribe(func(string) { p.enqueueAllProfiles() })
	return p
}

// Run works until ctx ends.
func (p *ProfilePublisher) Run(ctx context.Context) error {
	for {
		err := p.readPublishedProfiles(ctx)
		if err == nil {
			break
		}
		p.Log.Warn("nothing is published before it is known what is; trying again", "after", readAgain, "err", err)
		if !pause.WaitFor(ctx, readAgain) {
			return nil
		}
	}
	p.loop.Run(ctx, p.enqueueAllProfiles)
	return nil
}

// readPublishedProfiles reads what is published.
func (p *ProfilePublisher) readPublishedProfiles(ctx context.Context) error {
	for more := ""; ; {
		var list multicluster.ClusterProfileList
		err := p.Client.List(ctx, &list, client.InNamespace(Namespace), client.MatchingLabels{multicluster.LabelClusterManager: Manager}, client.Limit(page), client.Continue(more))
		if err != nil {
			return fmt.Errorf("read the published cluster profiles: %w", err)
		}
		p.mu.Lock()
		for i := range list.Items {
			p.published[list.Items[i].Name] = fingerprintProfile(&list.Items[i])
		}
		p.mu.Unlock()
		if more = list.Continue; more == "" {
			return nil
		}
	}
}

// enqueueAllProfiles enqueues the profiles of all clusters and all published profiles.
func (p *ProfilePublisher) enqueueAllProfiles() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.published {
		p.loop.EnqueueNow(name)
	}
	for _, c := range p.Clusters.List() {
		p.loop.EnqueueNow(c.Name)
	}
}

// reconcileProfile writes or deletes the profile of one cluster.
func (p *ProfilePublisher) reconcileProfile(ctx context.Context, name string) (again time.Duration, err error) {
	var want *multicluster.ClusterProfile
	if c, ok := p.Clusters.Get(name); ok && p.Settings.PublishesProfiles() {
		want = ProfileOf(c, p.Hub)
	}
	p.mu.Lock()
	was, is := p.published[name], fingerprintProfile(want)
	p.mu.Unlock()
	if was == is {
		return 0, nil
	}
	if err := p.limit.Wait(ctx); err != nil {
		return 0, err
	}
	if want == nil {
		err = p.deleteProfile(ctx, name)
	} else {
		err = p.writeProfile(ctx, want)
	}
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.published[name] = is; is == "" {
		delete(p.published, name)
	}
	return 0, nil
}

func (p *ProfilePublisher) writeProfile(ctx context.Context, want *multicluster.ClusterProfile) error {
	var now multicluster.ClusterProfile
	err := p.Client.Get(ctx, client.ObjectKeyFromObject(want), &now)
	switch {
	case apierrors.IsNotFound(err):
		now = multicluster.ClusterProfile{ObjectMeta: *want.ObjectMeta.DeepCopy(), Spec: want.Spec}
		if err := p.Client.Create(ctx, &now); err != nil {
			return fmt.Errorf("publish cluster %s: %w", want.Name, err)
		}
	case err != nil:
		return fmt.Errorf("read the profile of cluster %s: %w", want.Name, err)
	case now.Labels[multicluster.LabelClusterManager] != Manager || now.Spec.ClusterManager.Name != Manager:
		return fmt.Errorf("publish cluster %s: the ClusterProfile %s/%s is of cluster manager %q: delete or rename it", want.Name, now.Namespace, now.Name, now.Spec.ClusterManager.Name)
	case fingerprintProfile(&multicluster.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Labels: now.Labels}, Spec: now.Spec}) != fingerprintProfile(&multicluster.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Labels: want.Labels}, Spec: want.Spec}):
		now.Labels, now.Spec = want.Labels, want.Spec
		if err := p.Client.Update(ctx, &now); err != nil {
			return fmt.Errorf("publish cluster %s: %w", want.Name, err)
		}
	}
	now.Status = want.Status
	if err := p.Client.Status().Update(ctx, &now); err != nil {
		return fmt.Errorf("publish what is known of cluster %s: %w", want.Name, err)
	}
	return nil
}

// deleteProfile deletes a profile, if it is still Atoll's.
func (p *ProfilePublisher) deleteProfile(ctx context.Context, name string) error {
	var now multicluster.ClusterProfile
	if err := p.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, &now); err != nil {
		return client.IgnoreNotFound(err)
	}
	if now.Labels[multicluster.LabelClusterManager] != Manager {
		return nil
	}
	if err := p.Client.Delete(ctx, &now, client.Preconditions{UID: &now.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take the profile of cluster %s away: %w", name, err)
	}
	return nil
}
