package lab

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"atoll.dev/atoll/internal/atoll"
)

func TestReadGateway(t *testing.T) {
	hash := "sha256:" + strings.Repeat("f", 64)
	info := func(gateway, caHash string) *fake.Clientset {
		return fake.NewClientset(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: atoll.SystemNamespace, Name: "hub-info"},
			Data:       map[string]string{"gateway": gateway, "caHash": caHash},
		})
	}
	addresses, caHash, err := ReadGateway(t.Context(), info("a:1,b:2", hash))
	if err != nil || !slices.Equal(addresses, []string{"a:1", "b:2"}) || caHash != hash {
		t.Errorf("%q, %q, %v", addresses, caHash, err)
	}
	for _, incomplete := range []*fake.Clientset{info("", hash), info("a:1", "")} {
		if _, _, err := ReadGateway(t.Context(), incomplete); !errors.Is(err, ErrNoGateway) {
			t.Errorf("an incomplete ConfigMap: %v", err)
		}
	}
	if _, _, err := ReadGateway(t.Context(), fake.NewClientset()); !apierrors.IsNotFound(err) {
		t.Errorf("no ConfigMap: %v", err)
	}
}
