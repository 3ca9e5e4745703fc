package client

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/atoll"
)

// maxMemberBytes is how many bytes of a member's answers a connection reads.
const maxMemberBytes = 256 << 20

// ConnectMember returns a connection to the API of a member, by the hub's way to it. Its requests are
// made as the same user, with the rights that the user has there. It dials nothing. A connection reads
// at most 256 MiB of all answers together; more is an error of the request.
func (c *Connection) ConnectMember(cluster string) (*Connection, error) {
	if problems := validation.IsDNS1123Subdomain(cluster); len(problems) > 0 {
		return nil, fmt.Errorf("%q is no name of a cluster: atoll get clusters lists them", cluster)
	}
	config := rest.CopyConfig(c.Config)
	config.Host = strings.TrimSuffix(config.Host, "/") + atoll.ClusterProxyPath(cluster)
	limit := &answerLimit{cluster: cluster}
	limit.left.Store(maxMemberBytes)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitedTransport{next, limit} })
	out := &Connection{Config: config, Namespace: c.Namespace}
	return out, out.createClients()
}

// answerLimit bounds all answers of one member together.
type answerLimit struct {
	cluster string
	left    atomic.Int64
}

type limitedTransport struct {
	next  http.RoundTripper
	limit *answerLimit
}

func (t limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err == nil && answer.StatusCode != http.StatusSwitchingProtocols {
		answer.Body = limitedBody{answer.Body, t.limit}
	}
	return answer, err
}

type limitedBody struct {
	io.ReadCloser
	limit *answerLimit
}

func (b limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.limit.left.Add(-int64(n)) < 0 {
		return 0, fmt.Errorf("cluster %s answers with more than %d MiB", b.limit.cluster, maxMemberBytes>>20)
	}
	return n, err
}
