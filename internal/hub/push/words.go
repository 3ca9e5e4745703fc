package push

import (
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/inventory"
	"atoll.dev/atoll/internal/trust/handshake"
)

// Reasons of the condition Pushed.
const (
	ReasonWorks              = "AgentWorks"
	ReasonStandsBy           = "StandsBy"
	ReasonCredentialsMissing = "CredentialsMissing"
	ReasonCredentialsBad     = "CredentialsMalformed"
	ReasonCredentialsRefused = "CredentialsRefused"
	ReasonNotAllowed         = "NotAllowedInMember"
	ReasonUnreachable        = "MemberUnreachable"
	ReasonAgentFailed        = "AgentFailed"
	ReasonCredentialsUnused  = "CredentialsNotUsed"
)

// joinAgain is what gives a cluster new credentials.
func joinAgain(cluster string) string {
	return fmt.Sprintf("atoll join %s --push --kubeconfig MEMBER", cluster)
}

func missing(cluster string) inventory.Pushed {
	return inventory.Pushed{Reason: ReasonCredentialsMissing, Message: "the hub has no credentials of the member; who has a kubeconfig of both runs: " + joinAgain(cluster)}
}

func malformed(secret string, err error) inventory.Pushed {
	return inventory.Pushed{Reason: ReasonCredentialsBad, Message: fmt.Sprintf("Secret atoll-system/%s on the hub: %v", secret, err)}
}

func unused(secret string) inventory.Pushed {
	return inventory.Pushed{Reason: ReasonCredentialsUnused, Message: fmt.Sprintf(
		"the hub keeps credentials of the member that it does not use, for when mode becomes Push again; to drop them, on the hub: kubectl delete secret -n atoll-system %s", secret)}
}

// failed is what becomes of an agent that ended although nobody asked it to.
func failed(err error) inventory.Pushed {
	return inventory.Pushed{Reason: ReasonAgentFailed, Message: fmt.Sprintf("the agent that the hub runs ended, and is started again: %v", err)}
}

// told is what a stage of the agent means that began then.
func told(cluster string, c handshake.Credentials, s agent.Stage, since time.Time) inventory.Pushed {
	host, _, _ := strings.Cut(s.Holder, "_")
	from := "since " + since.UTC().Format(time.RFC3339) + ": "
	switch {
	case s.Works:
		return inventory.Pushed{OK: true, Reason: ReasonWorks}
	case s.Holder != "":
		return inventory.Pushed{OK: true, Reason: ReasonStandsBy, Message: "another agent works on the member, on host " + host + "; the hub's takes over when that one ends"}
	case apierrors.IsUnauthorized(s.Err):
		return inventory.Pushed{Reason: ReasonCredentialsRefused, Message: from + "the member's API at " + c.Server + " does not take the hub's token: it was withdrawn there, or belongs to another cluster. For a new one: " + joinAgain(cluster)}
	case apierrors.IsForbidden(s.Err):
		return inventory.Pushed{Reason: ReasonNotAllowed, Message: from + s.Err.Error() + ". The ClusterRole atoll-agent in the member says what the agent may do"}
	}
	return inventory.Pushed{Reason: ReasonUnreachable, Message: from + s.Err.Error() + ". Is the member's API up, and does the hub reach " + c.Server + "? What runs in the member goes on running"}
}
