package atoll

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// foreignPrefix and foreignSuffix are around the namespace in the path of a question about foreign objects.
	foreignPrefix = "/apis/" + FleetViewHost + "/v1/namespaces/"
	foreignSuffix = "/foreignobjects"
	// MaxForeignObjects is how many foreign objects of a namespace an agent names.
	MaxForeignObjects = 20
	// maxForeignName and maxForeignText bound the parts of an answer about foreign objects, in bytes.
	maxForeignName, maxForeignText = 253, 512
)

// ForeignObject is an object that Atoll did not apply.
type ForeignObject struct {
	Resource schema.GroupResource
	Name     string
}

// ForeignObjects are the objects that would keep a namespace of Atoll in a member when the hub's namespace is deleted.
type ForeignObjects struct {
	// Objects are at most MaxForeignObjects of them.
	Objects []ForeignObject
	// More is the number of further objects.
	More int64
	// Unread says why some objects may be missing; empty: none is.
	Unread string
}

// MemberForeignObjects is the answer of one cluster, or the error in its place.
type MemberForeignObjects struct {
	Cluster string
	ForeignObjects
	Err error
}

// ForeignObjectsPath is the path at which an agent answers the hub about a namespace.
func ForeignObjectsPath(namespace string) string { return foreignPrefix + namespace + foreignSuffix }

// NamespaceOfForeignObjectsPath returns the namespace of such a path; false for other paths.
func NamespaceOfForeignObjectsPath(path string) (namespace string, ok bool) {
	rest, ok := strings.CutPrefix(path, foreignPrefix)
	if !ok {
		return "", false
	}
	namespace, ok = strings.CutSuffix(rest, foreignSuffix)
	return namespace, ok && len(validation.IsDNS1123Label(namespace)) == 0
}

// ToStatus returns the answer that an agent sends: one cause for each object.
func (f ForeignObjects) ToStatus() *metav1.Status {
	details := &metav1.StatusDetails{}
	for _, o := range f.Objects {
		details.Causes = append(details.Causes, metav1.StatusCause{Type: metav1.CauseType(o.Resource.String()), Field: o.Name})
	}
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, ListMeta: metav1.ListMeta{RemainingItemCount: &f.More},
		Status: metav1.StatusSuccess, Message: f.Unread, Details: details, Code: 200,
	}
}

// ForeignObjectsFromStatus reads such an answer. An answer that no agent sends is an error.
func ForeignObjectsFromStatus(s *metav1.Status) (ForeignObjects, error) {
	out := ForeignObjects{Unread: s.Message}
	if s.Status != metav1.StatusSuccess || s.Details == nil || s.RemainingItemCount == nil || *s.RemainingItemCount < 0 {
		return ForeignObjects{}, errors.New("it is no answer about foreign objects")
	}
	if len(s.Details.Causes) > MaxForeignObjects || len(s.Message) > maxForeignText {
		return ForeignObjects{}, fmt.Errorf("it has %d objects and a message of %d bytes", len(s.Details.Causes), len(s.Message))
	}
	out.More = *s.RemainingItemCount
	for i, cause := range s.Details.Causes {
		o := ForeignObject{Resource: schema.ParseGroupResource(string(cause.Type)), Name: cause.Field}
		if len(cause.Type) > maxForeignName || len(validation.IsDNS1123Subdomain(string(cause.Type))) > 0 || o.Name == "" || len(o.Name) > maxForeignName {
			return ForeignObjects{}, fmt.Errorf("object %d has no valid resource or name", i)
		}
		out.Objects = append(out.Objects, o)
	}
	return out, nil
}
