package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/metrics/pkg/apis/metrics"

	"atoll.dev/atoll/internal/atoll"
)

// parseCompleteOption reports whether a list must lack nothing. The request is a part of the label
// selector, which all clients can set, and is removed from it: the returned options select the
// rest.
func parseCompleteOption(options *internalversion.ListOptions) (*internalversion.ListOptions, bool, error) {
	if options == nil || options.LabelSelector == nil {
		return options, false, nil
	}
	rest, asked, err := removeCompleteRequirement(options.LabelSelector)
	if err != nil || !asked {
		return options, false, err
	}
	out := *options
	out.LabelSelector = rest
	return &out, true, nil
}

// removeCompleteRequirement removes the requirement of a complete list, if there is one.
func removeCompleteRequirement(selector labels.Selector) (rest labels.Selector, asked bool, err error) {
	all, _ := selector.Requirements()
	rest = labels.NewSelector()
	for _, r := range all {
		if r.Key() != atoll.LabelComplete {
			rest = rest.Add(r)
			continue
		}
		if o := r.Operator(); o != selection.Equals && o != selection.DoubleEquals && o != selection.In || !slices.Equal(r.ValuesUnsorted(), []string{"true"}) {
			return nil, false, apierrors.NewBadRequest(fmt.Sprintf("the label selector %s: nothing has this label; %s=true requests lists in which nothing is missing", r.String(), atoll.LabelComplete))
		}
		asked = true
	}
	return rest, asked, nil
}

// errNoneDeleted is the answer to a deletion of all that such a selector selects: taken for its
// letter that is nothing, without the label it may be everything.
var errNoneDeleted = apierrors.NewBadRequest(fmt.Sprintf("%s=true requests lists in which nothing is missing, and does not select what is deleted: leave it out", atoll.LabelComplete))

// StripCompleteSelector goes around the API's handler, inside authorization. Lists of what is stored on the hub
// lack nothing, so there it is enough to take this requirement out of the label selector: no object
// has the label, and the answer would be that there is nothing. Nothing is deleted by it.
func StripCompleteSelector(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		asked := r.URL.Query()
		if !ok || !info.IsResourceRequest || info.Subresource != "" || info.APIGroup == metrics.GroupName ||
			slices.Contains(shown[info.APIGroup+"/"+info.APIVersion], info.Resource) || !strings.Contains(asked.Get("labelSelector"), atoll.LabelComplete) {
			next.ServeHTTP(w, r)
			return
		}
		selector, err := labels.Parse(asked.Get("labelSelector"))
		if err != nil { // the API has the better error
			next.ServeHTTP(w, r)
			return
		}
		rest, complete, err := removeCompleteRequirement(selector)
		if complete && info.Verb == "deletecollection" {
			err = errNoneDeleted
		}
		if err != nil {
			gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
			responsewriters.ErrorNegotiated(err, legacyscheme.Codecs, gv, w, r)
			return
		}
		asked.Set("labelSelector", rest.String())
		bare, at := *r, *r.URL
		at.RawQuery = asked.Encode()
		bare.URL = &at
		next.ServeHTTP(w, &bare)
	})
}

// incompleteError is the answer to a request for a complete list that lacks some members; nil
// where none is missing. It has no retry time: clients would wait by themselves, and people would
// wait with them for a cluster that is disconnected for days.
func (g gatheredObjects) incompleteError(resource string) error {
	if len(g.missing) == 0 {
		return nil
	}
	why := g.missingReasons()
	text := strings.Join(why[:min(len(why), namedMost)], "; ")
	if more := len(why) - namedMost; more > 0 {
		text += fmt.Sprintf("; and %d more clusters: atoll get clusters shows which are away", more)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: fmt.Sprintf("%s would be missing, and %s=true requests all: %s", resource, atoll.LabelComplete, text),
	}}
}
