package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/restore"
	"atoll.dev/atoll/internal/state"
)

// storedKeys is an etcd at a revision, with keys in their order. It counts the pages that are read.
type storedKeys struct {
	clientv3.KV
	revision int64
	keys     []*mvccpb.KeyValue
	fails    error // of the revision
	failPage int   // the page from which on reading fails; 0: none
	pages    int
}

func (x *storedKeys) Get(_ context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, opts...)
	if op.IsCountOnly() {
		return &clientv3.GetResponse{Header: &etcdserverpb.ResponseHeader{Revision: x.revision}}, x.fails
	}
	if x.pages++; x.failPage > 0 && x.pages >= x.failPage {
		return nil, errors.New("the store is away")
	}
	if !op.IsKeysOnly() || string(op.RangeBytes()) != "\x00" {
		return nil, fmt.Errorf("a read of more than keys from %q on", key)
	}
	out := &clientv3.GetResponse{}
	for _, kv := range x.keys {
		if string(kv.Key) < key {
			continue
		}
		if len(out.Kvs) == keyPageSize {
			out.More = true
			break
		}
		out.Kvs = append(out.Kvs, kv)
	}
	return out, nil
}

func (x *storedKeys) addKey(key string, revision int64) {
	x.keys = append(x.keys, &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision})
}

// newStateClient returns a client of a store with these objects, and the versions of the HubState that it writes.
func newStateClient(written *[]enginev1.HubState, objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(state.NewScheme()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			err := c.Create(ctx, o, opts...)
			*written = append(*written, *o.(*enginev1.HubState).DeepCopy())
			return err
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			err := c.Update(ctx, o, opts...)
			*written = append(*written, *o.(*enginev1.HubState).DeepCopy())
			return err
		},
	}).Build()
}

func hubStateWithChain(links ...enginev1.ChainLink) *enginev1.HubState {
	return &enginev1.HubState{ObjectMeta: metav1.ObjectMeta{Name: state.HubStateName, ResourceVersion: "50"}, Chain: links}
}

// A start is a link of the chain at the store's revision, in one write. The next start is another link.
func TestAStartIsAddedToTheChain(t *testing.T) {
	var written []enginev1.HubState
	c, etcd := newStateClient(&written), &storedKeys{revision: 70}
	first, err := RecordHubStart(t.Context(), c, &clientv3.Client{KV: etcd}, "", false)
	if err != nil || len(first.Chain) != 1 || first.Chain[0].ID == "" || first.Chain[0].Revision != 70 || first.Rewound != nil || first.Beginning != "" {
		t.Fatalf("the first start: %+v, %v", first, err)
	}
	etcd.revision = 80
	second, err := RecordHubStart(t.Context(), c, &clientv3.Client{KV: etcd}, "restored from a backup", false)
	if err != nil || len(second.Chain) != 2 || second.Chain[0] != first.Chain[0] || second.Chain[1].ID == first.Chain[0].ID || second.Chain[1].Revision != 80 {
		t.Fatalf("the second start: %+v, %v", second, err)
	}
	if second.Rewound == nil || second.Rewound.Reason != "restored from a backup" || len(written) != 2 || etcd.pages > 0 {
		t.Errorf("the restore is %+v, in %d writes; %d pages are read", second.Rewound, len(written), etcd.pages)
	}
}

// With other hubs the link before ends first: the new one begins at the revision of that write.
func TestAStartBesideOtherHubsEndsTheLinkBefore(t *testing.T) {
	var written []enginev1.HubState
	before := enginev1.ChainLink{ID: "before", Revision: 40}
	c := newStateClient(&written, hubStateWithChain(before))
	got, err := RecordHubStart(t.Context(), c, &clientv3.Client{KV: &storedKeys{revision: 45}}, "", true)
	if err != nil || len(written) != 2 {
		t.Fatalf("%d writes, %v", len(written), err)
	}
	ended := written[0]
	at, err := strconv.ParseInt(ended.ResourceVersion, 10, 64)
	if err != nil || ended.Beginning == "" || len(ended.Chain) != 1 {
		t.Errorf("first it writes %+v, %v", ended, err)
	}
	if len(got.Chain) != 2 || got.Chain[0] != before || got.Chain[1] != (enginev1.ChainLink{ID: ended.Beginning, Revision: at}) || got.Beginning != "" {
		t.Errorf("then it writes %+v, and began %q at %d", got, ended.Beginning, at)
	}
}

// A start that cannot read or write the store fails, and says what failed. Nothing is added to the chain.
func TestAStartFailsWithoutTheStore(t *testing.T) {
	away := errors.New("the store is away")
	far := hubStateWithChain(enginev1.ChainLink{ID: "a", Revision: 1})
	for what, tc := range map[string]struct {
		etcd    *storedKeys
		several bool
		funcs   interceptor.Funcs
		want    string
	}{
		"no revision": {&storedKeys{fails: away}, false, interceptor.Funcs{}, "read the store's revision: the store is away"},
		"no keys":     {&storedKeys{revision: restore.MaxRevisionJump + 2, failPage: 1}, false, interceptor.Funcs{}, "look for the newest key of the store: the store is away"},
		"no HubState": {&storedKeys{revision: 1}, false, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return away
		}}, "the store is away"},
		"no write":               {&storedKeys{revision: 1}, false, interceptor.Funcs{Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return away }}, "write the hub's state: the store is away"},
		"no first of two writes": {&storedKeys{revision: 1}, true, interceptor.Funcs{Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return away }}, "write the hub's state: the store is away"},
		"a revision that is no number": {&storedKeys{revision: 1}, true, interceptor.Funcs{Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
			o.SetResourceVersion("x")
			return nil
		}}, "read the revision at which the hub's state was written: "},
	} {
		c := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithObjects(far.DeepCopy()).WithInterceptorFuncs(tc.funcs).Build()
		got, err := RecordHubStart(t.Context(), c, &clientv3.Client{KV: tc.etcd}, "", tc.several)
		if got != nil || err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %+v, %v; want %q", what, got, err, tc.want)
		}
	}
}

// A store that is far ahead of the last start is restored with a revision bump, unless one of its keys is new. Leases do
// not count: hubs write them at once. Keys are read only where a bump is possible, and until one is new.
func TestARevisionBumpShowsInTheKeys(t *testing.T) {
	const last, bumped = 100, 100 + restore.MaxRevisionJump + 1
	slices := "/registry/engine.atoll.dev/targetslices/a"
	many := func(old int, add func(x *storedKeys)) func(x *storedKeys) {
		return func(x *storedKeys) {
			for i := range old {
				x.addKey(fmt.Sprintf("/registry/engine.atoll.dev/targetslices/%06d", i), 90)
			}
			add(x)
		}
	}
	for what, tc := range map[string]struct {
		revision int64
		keys     func(x *storedKeys)
		restored bool
		pages    int
	}{
		"as far as a hub may be":    {bumped - 1, func(x *storedKeys) { x.addKey(slices, 90) }, false, 0},
		"a new row":                 {bumped, func(x *storedKeys) { x.addKey("/registry/configmaps/a", 90); x.addKey(slices, bumped-5) }, false, 1},
		"a new object":              {bumped, func(x *storedKeys) { x.addKey("/registry/configmaps/a", bumped-5); x.addKey(slices, 90) }, false, 2},
		"nothing new":               {bumped, func(x *storedKeys) { x.addKey("/registry/configmaps/a", 90); x.addKey(slices, 90) }, true, 2},
		"only a lease":              {bumped, func(x *storedKeys) { x.addKey("/registry/leases/a", bumped-5); x.addKey(slices, 90) }, true, 2},
		"no key at all":             {bumped, func(*storedKeys) {}, true, 2},
		"a new row on another page": {bumped, many(keyPageSize, func(x *storedKeys) { x.addKey("/registry/engine.atoll.dev/targetslices/z", bumped-5) }), false, 2},
		"a page that is just full":  {bumped, many(keyPageSize, func(*storedKeys) {}), true, 2},
		"two pages of nothing new":  {bumped, many(keyPageSize+1, func(*storedKeys) {}), true, 4},
	} {
		var written []enginev1.HubState
		etcd := &storedKeys{revision: tc.revision}
		tc.keys(etcd)
		c := newStateClient(&written, hubStateWithChain(enginev1.ChainLink{ID: "a", Revision: 1}, enginev1.ChainLink{ID: "b", Revision: last}))
		got, err := RecordHubStart(t.Context(), c, &clientv3.Client{KV: etcd}, "", false)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if (got.Rewound != nil) != tc.restored || tc.restored && !strings.HasSuffix(got.Rewound.Reason, "it was restored from a snapshot, with a revision bump") {
			t.Errorf("%s: the restore is %+v", what, got.Rewound)
		}
		if etcd.pages != tc.pages {
			t.Errorf("%s: %d pages are read, want %d", what, etcd.pages, tc.pages)
		}
	}
}

// A write of the HubState that meets another one is decided again on the newer state. It makes a state that is missing.
func TestTheHubStateIsWrittenOnTheNewestState(t *testing.T) {
	conflicts := 1
	c := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithObjects(hubStateWithChain()).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if conflicts--; conflicts >= 0 {
				other := hubStateWithChain(enginev1.ChainLink{ID: "other"})
				if err := c.Update(ctx, other); err != nil {
					return err
				}
				return apierrors.NewConflict(schema.GroupResource{}, state.HubStateName, nil)
			}
			return c.Update(ctx, o, opts...)
		},
	}).Build()
	add := func(old enginev1.HubState) enginev1.HubState {
		old.Chain = append(old.Chain, enginev1.ChainLink{ID: "own"})
		return old
	}
	got, err := updateHubState(t.Context(), c, add)
	if err != nil || len(got.Chain) != 2 || got.Chain[0].ID != "other" || got.Chain[1].ID != "own" {
		t.Errorf("%+v, %v", got, err)
	}
	var written []enginev1.HubState
	got, err = updateHubState(t.Context(), newStateClient(&written), add)
	if err != nil || got.Name != state.HubStateName || len(got.Chain) != 1 || got.ResourceVersion == "" {
		t.Errorf("a missing state: %+v, %v", got, err)
	}
	away := errors.New("the store is away")
	unread := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return away
		},
	}).Build()
	if got, err = updateHubState(t.Context(), unread, add); !errors.Is(err, away) || got != nil {
		t.Errorf("a state that cannot be read: %+v, %v", got, err)
	}
}
