package server

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"
	api "k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview"
)

// TestOwnersAreTheMembersToSay: what the hub shows of them is no owner in the member.
func TestOwnersAreTheMembersToSay(t *testing.T) {
	yes, no := true, false
	pod := &api.Pod{}
	pod.Name, pod.Labels = "web-1.oslo", map[string]string{atoll.LabelCluster: "oslo"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: fleetview.OwnerGroupVersion, Kind: "ReplicaSet", Name: "web.oslo", UID: "rs", Controller: &yes}}
	o := &objectStorage{kind: kinds["pods"]}
	c := memberObjectChange{at: &memberObject{member: &member{Member: fleetview.Member{Cluster: "oslo"}, Cluster: &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "oslo"}}}}, info: noPreconditions{}}
	if err := o.checkChange(c, pod, pod.DeepCopy()); err != nil {
		t.Errorf("owners that are as they were: %v", err)
	}
	for what, change := range map[string]func(*metav1.OwnerReference){
		"no controller": func(r *metav1.OwnerReference) { r.Controller = &no },
		"of a group":    func(r *metav1.OwnerReference) { r.APIVersion = "apps/v1" },
		"blocking":      func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = &yes },
	} {
		after := pod.DeepCopy()
		change(&after.OwnerReferences[0])
		if err := o.checkChange(c, pod, after); err == nil {
			t.Errorf("%s: the member would get an owner that it does not have", what)
		}
	}
}

// noPreconditions of a change.
type noPreconditions struct{}

func (noPreconditions) Preconditions() *metav1.Preconditions { return nil }

func (noPreconditions) UpdatedObject(context.Context, runtime.Object) (runtime.Object, error) {
	return nil, nil
}

// ofUID is a change that is of one alone.
type ofUID struct {
	noPreconditions
	uid types.UID
}

func (a ofUID) Preconditions() *metav1.Preconditions { return &metav1.Preconditions{UID: &a.uid} }

// newRunningPod is a Pod as it is shown of Oslo, at version 10 there. A list knows it by the given
// version.
func newRunningPod(t *testing.T) (o *objectStorage, pod *api.Pod, listed string) {
	t.Helper()
	o = &objectStorage{kind: kinds["pods"], fleet: &Fleet{history: fleetview.NewHistory(time.Now())}}
	pod = &api.Pod{}
	pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion = "shop", "web-1.oslo", "u1", "10"
	pod.Labels = map[string]string{atoll.LabelCluster: "oslo"}
	return o, pod, o.fleet.history.RecordList("pods", fleetview.Versions{"": "5", "oslo": "10"}, time.Now())
}

func inOslo(info rest.UpdatedObjectInfo) memberObjectChange {
	return memberObjectChange{at: &memberObject{member: &member{Member: fleetview.Member{Cluster: "oslo"}, Cluster: &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "oslo"}}}}, info: info}
}

// TestAChangeIsOfWhatWasRead: not of another object under the name, nor of one that has changed
// since, nor one that says that it runs elsewhere.
func TestAChangeIsOfWhatWasRead(t *testing.T) {
	o, pod, listed := newRunningPod(t)
	for what, c := range map[string]struct {
		info   rest.UpdatedObjectInfo
		at     string // the Pod is, by now
		change func(*api.Pod)
		why    func(error) bool
	}{
		"as it was read":              {info: noPreconditions{}, at: "10"},
		"the UID that it has":         {info: ofUID{uid: "u1"}, at: "10"},
		"another UID":                 {info: ofUID{uid: "u0"}, at: "10", why: apierrors.IsConflict},
		"of no version":               {info: noPreconditions{}, at: "11", change: func(p *api.Pod) { p.ResourceVersion = "" }},
		"of the version of a list":    {info: noPreconditions{}, at: "10", change: func(p *api.Pod) { p.ResourceVersion = listed }},
		"changed since it was listed": {info: noPreconditions{}, at: "11", change: func(p *api.Pod) { p.ResourceVersion = listed }, why: apierrors.IsConflict},
		"changed since it was read":   {info: noPreconditions{}, at: "11", change: func(p *api.Pod) { p.ResourceVersion = "10" }, why: apierrors.IsConflict},
		"said to run elsewhere":       {info: noPreconditions{}, at: "10", change: func(p *api.Pod) { p.Labels[atoll.LabelCluster] = "rome" }, why: apierrors.IsBadRequest},
		"said to run nowhere":         {info: noPreconditions{}, at: "10", change: func(p *api.Pod) { p.Labels = nil }, why: apierrors.IsBadRequest},
	} {
		before := pod.DeepCopy()
		before.ResourceVersion = c.at
		after := before.DeepCopy()
		if c.change != nil {
			c.change(after)
		}
		err := o.checkChange(inOslo(c.info), before, after)
		if (err == nil) != (c.why == nil) || err != nil && !c.why(err) || err == nil && after.ResourceVersion != c.at {
			t.Errorf("%s: %v; it is to be of version %s", what, err, after.ResourceVersion)
		}
	}
}

// TestWhatIsWrittenIsOfThatObjectAlone: what is sent to a member names the object that was looked
// at, by UID and version, so that the member refuses it of any other.
func TestWhatIsWrittenIsOfThatObjectAlone(t *testing.T) {
	o, pod, listed := newRunningPod(t)
	after := pod.DeepCopy()
	after.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	if patch, err := o.kind.mergePatch(pod, after); patch != nil || err != nil {
		t.Errorf("nothing to change is written as %s, %v", patch, err)
	}
	after.Labels["app"] = "web"
	if patch, err := o.kind.mergePatch(pod, after); err != nil || string(patch) != `{"metadata":{"labels":{"app":"web"},"resourceVersion":"10","uid":"u1"}}` {
		t.Errorf("a change is written as %s, %v", patch, err)
	}
	other, version, seconds := types.UID("u0"), "10", int64(5)
	m := inOslo(nil).at.member
	for what, c := range map[string]struct {
		asked *metav1.DeleteOptions
		want  string
	}{
		"no options":            {nil, `"preconditions":{"uid":"u1"}`},
		"options of its own":    {&metav1.DeleteOptions{GracePeriodSeconds: &seconds, DryRun: []string{"All"}}, `"gracePeriodSeconds":5,"preconditions":{"uid":"u1"},"dryRun":["All"]`},
		"another UID":           {&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}, `"preconditions":{"uid":"u0"}`},
		"its version":           {&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}, `"preconditions":{"uid":"u1","resourceVersion":"10"}`},
		"the version of a list": {&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &listed}}, `"preconditions":{"uid":"u1","resourceVersion":"10"}`},
	} {
		body, err := o.deletionBody(m, pod, c.asked)
		if want := `{"kind":"DeleteOptions","apiVersion":"v1",` + c.want + `}`; err != nil || string(body) != want {
			t.Errorf("with %s a deletion is written as %s, %v, want %s", what, body, err, want)
		}
	}
	now := pod.DeepCopy()
	now.ResourceVersion = "11"
	for since, want := range map[string]string{listed: listed, "10": "10"} {
		body, err := o.deletionBody(m, now, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &since}})
		if err != nil || !strings.Contains(string(body), `"resourceVersion":"`+want+`"`) {
			t.Errorf("of one that has changed since %s is written %s, %v", since, body, err)
		}
	}
}
