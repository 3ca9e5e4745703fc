package push

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/trust/handshake"
)

// secretChoice among the Secrets that are labelled with a Cluster's name.
type secretChoice struct {
	// secret that counts: the newest; nil: there is none.
	secret *corev1.Secret
	// unowned: it does not go with its Cluster as yet.
	unowned bool
	// outdated are older ones.
	outdated []*corev1.Secret
}

// chooseCredentials chooses for the Cluster of that name and UID. Secrets of an earlier Cluster of
// the same name do not count.
func chooseCredentials(cluster string, uid types.UID, secrets []*corev1.Secret) secretChoice {
	var mine []*corev1.Secret
	unowned := map[*corev1.Secret]bool{}
	for _, s := range secrets {
		if s.Type != handshake.PushSecretType || s.Labels[handshake.LabelPush] != cluster || s.DeletionTimestamp != nil {
			continue
		}
		owner, owned := ownerOf(s)
		if owned && owner != uid {
			continue
		}
		unowned[s] = !owned
		mine = append(mine, s)
	}
	if len(mine) == 0 {
		return secretChoice{}
	}
	slices.SortFunc(mine, func(a, b *corev1.Secret) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
	return secretChoice{secret: mine[0], unowned: unowned[mine[0]], outdated: mine[1:]}
}

// ownerOf returns the owner of a Secret among Clusters.
func ownerOf(s *corev1.Secret) (uid types.UID, owned bool) {
	for _, o := range s.OwnerReferences {
		if want := handshake.PushOwner(o.Name, o.UID); o.APIVersion == want.APIVersion && o.Kind == want.Kind {
			return o.UID, true
		}
	}
	return "", false
}
