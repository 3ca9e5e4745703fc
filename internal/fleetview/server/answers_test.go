package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/answerweight"
	"atoll.dev/atoll/internal/fleetview"
	"atoll.dev/atoll/internal/memberproxy"
)

// packMessage is an object of v1 as members answer with it.
func packMessage(t *testing.T, kind string, message []byte) []byte {
	t.Helper()
	text, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: message}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), text...)
}

// inField is a message as a field of another one.
func inField(number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), message)
}

// repeatMessage times the same.
func repeatMessage(n int, message []byte) []byte { return []byte(strings.Repeat(string(message), n)) }

// TestAnswersStaySmallInMemory: a member may say nothing a million times in a small answer.
func TestAnswersStaySmallInMemory(t *testing.T) {
	const times = 600_000
	for what, answer := range map[string][]byte{
		"pods":           packMessage(t, "PodList", repeatMessage(times, inField(2, nil))),
		"containers":     packMessage(t, "Pod", inField(2, repeatMessage(2*times, inField(2, nil)))),
		"volumes":        packMessage(t, "PodList", inField(2, inField(2, repeatMessage(3*times, inField(1, nil))))),
		"pods as JSON":   []byte(`{"kind":"PodList","apiVersion":"v1","items":[{}` + strings.Repeat(",{}", times) + "]}"),
		"of other kinds": packMessage(t, "SecretList", repeatMessage(2*times, inField(2, nil))),
	} {
		if obj, _, err := liveAnswers.Decode(answer, nil, nil); err == nil {
			t.Errorf("%s: %d bytes become a %T", what, len(answer), obj)
		}
	}
}

// TestHonestAnswersAreRead: of a large member, and the messages of proxies.
func TestHonestAnswersAreRead(t *testing.T) {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-dfcc7d78b-52mr8", GenerateName: "web-dfcc7d78b-", UID: "17d3a3c4-6c9b-4bb4-8e4e-5ba8b22a9b1a", ResourceVersion: "123456",
			Labels:          map[string]string{"app": "web", "pod-template-hash": "dfcc7d78b"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-dfcc7d78b", UID: "7b1b0a5e-4f0a-4a53-9b5e-0c8a4a2e7d11"}},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsV1: metav1.NewFieldsV1(string(repeatMessage(60, []byte(`"f:spec":{},`))))},
				{Manager: "kubelet", Operation: "Update", APIVersion: "v1", Subresource: "status", FieldsV1: metav1.NewFieldsV1(string(repeatMessage(60, []byte(`"f:status":{},`))))},
			},
		},
		Spec: corev1.PodSpec{NodeName: "node-1.eu.example.com", Containers: []corev1.Container{{
			Name: "web", Image: "registry.example.com/shop/web:1.2.3", Env: []corev1.EnvVar{{Name: "DATABASE", Value: "postgres.shop.svc.cluster.local"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
		}}, Volumes: []corev1.Volume{{Name: "kube-api-access"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "web", Ready: true, Image: "registry.example.com/shop/web:1.2.3", ImageID: "registry.example.com/shop/web@sha256:" + strings.Repeat("0a", 32)}},
		},
	}
	list := &corev1.PodList{}
	for range 10_000 {
		list.Items = append(list.Items, pod)
	}
	message, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	left := len(message) * (decodedMost / answerMost)
	if err := answerweight.WeighMessage(reflect.TypeFor[corev1.PodList](), message, &left); err != nil {
		t.Errorf("a list as long as answers may be, of such pods, is refused: %v", err)
	}
	obj, _, err := liveAnswers.Decode(packMessage(t, "PodList", message), nil, nil)
	if read, ok := obj.(*corev1.PodList); err != nil || !ok || len(read.Items) != len(list.Items) || read.Items[1].Labels["app"] != "web" {
		t.Errorf("a list of many pods is read as a %T, %v", obj, err)
	}
	obj, _, err = liveAnswers.Decode([]byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Forbidden","code":403}`), nil, nil)
	if s, ok := obj.(*metav1.Status); err != nil || !ok || s.Code != 403 {
		t.Errorf("a Status is read as a %T, %v", obj, err)
	}
}

// TestVersionsOfMembersAreShort: they are remembered, by each list and event.
func TestVersionsOfMembersAreShort(t *testing.T) {
	long := strings.Repeat("1", 1<<20)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		encoder := clientscheme.Codecs.EncoderForVersion(protobuf.Serializer, corev1.SchemeGroupVersion)
		if r.URL.Query().Get("watch") == "" {
			_ = encoder.Encode(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: long}}, w)
			return
		}
		frames := streaming.NewEncoder(protobuf.StreamSerializer.Framer.NewFrameWriter(w), clientscheme.Codecs.EncoderForVersion(protobuf.StreamSerializer.Serializer, corev1.SchemeGroupVersion))
		_ = restwatch.NewEncoder(frames, encoder).Encode(&watch.Event{Type: watch.Bookmark, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: long}}})
	}))
	t.Cleanup(agent.Close)
	c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}}
	c.Name, c.UID = "oslo", "uid"
	f := New(Options{Reach: memberproxy.New(memberproxy.Options{Log: slog.New(slog.DiscardHandler), Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", agent.Listener.Addr().String())
	}})})
	m := &member{Cluster: c, Member: fleetview.Member{Cluster: "oslo"}}
	ctx, _ := whoAsks(t, "jane", "")
	if _, version, err := f.list(ctx, m, kinds["pods"], "", fleetview.FleetSelection{}, nil); err == nil {
		t.Errorf("a list is at a version of %d bytes", len(version))
	}
	w := &watchMerger{o: &objectStorage{fleet: f, kind: kinds["pods"]}, ctx: ctx, in: make(chan sourceEvent, 1), queue: f.newEventQueue(ctx)}
	if version, err := w.streamMember(m, "5"); err == nil || version != "5" {
		t.Errorf("a watch is at a version of %d bytes, %v", len(version), err)
	}
}
