package lab

import (
	"context"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust"
)

// ErrNoGateway means that a hub has just started, and has not published its gateway yet.
var ErrNoGateway = errors.New("the hub publishes no gateway address yet; try again in a few seconds")

// ReadGateway returns the addresses of a hub's gateway, each HOST:PORT, and the hash of its CA.
func ReadGateway(ctx context.Context, hub kubernetes.Interface) (addresses []string, caHash string, err error) {
	info, err := hub.CoreV1().ConfigMaps(atoll.SystemNamespace).Get(ctx, "hub-info", metav1.GetOptions{})
	if err != nil {
		return nil, "", err
	}
	addresses, caHash = strings.Split(info.Data["gateway"], ","), info.Data["caHash"]
	if addresses[0] == "" || !trust.IsValidKeyHash(caHash) {
		return nil, "", ErrNoGateway
	}
	return addresses, caHash, nil
}
