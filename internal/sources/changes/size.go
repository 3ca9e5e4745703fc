package changes

import (
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// EmptyContent is why content without an object is refused.
var EmptyContent = render.Failure{Reason: atoll.ReasonContentEmpty, Message: "it has no object in the paths of the Source, which is not a removal"}

// maxInventoryBytes is the most that an inventory may take of a Source, which the store bounds at 1.5 MiB.
const maxInventoryBytes = 1 << 20

// inventoryBytes returns the most bytes that the objects take as an inventory.
func inventoryBytes(objects []v1alpha1.SourceObject) (sum int) {
	// fixed is the names of the fields, and the longest hashes, UID and reason to stay.
	const fixed = 280
	for _, o := range objects {
		sum += fixed + len(o.APIVersion) + len(o.Kind) + len(o.Namespace) + len(o.Name)
	}
	return sum
}

// CheckSize returns why a Source cannot have so many objects, those that stay among them; nil when it can.
func CheckSize(objects []v1alpha1.SourceObject) *render.Failure {
	switch {
	case len(objects) > render.MaxObjects:
		return render.NewFailure(atoll.ReasonContentTooLarge, "it has, with the objects that stay, more than %d objects; divide the Source into several", render.MaxObjects)
	case inventoryBytes(objects) > maxInventoryBytes:
		return render.NewFailure(atoll.ReasonContentTooLarge, "the names of its objects have more than %d bytes; divide the Source into several", maxInventoryBytes)
	}
	return nil
}
