package castatus

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/trust/standing"
)

// verbRotate on the HubSettings is the right to rotate the hub's CAs.
const verbRotate = "rotate"

// CAEndpoints serves standing.Path and standing.CertificatesPath.
type CAEndpoints struct {
	// Reporter returns false before the hub's tables are read.
	Reporter func() (*CAReporter, bool)
	// Authorizer returns the authorizer of the API.
	Authorizer func() authorizer.Authorizer
}

// ServeCARequest answers with the status of the hub's CAs, or changes the CAs.
func (e CAEndpoints) ServeCARequest(w http.ResponseWriter, r *http.Request) {
	s, err := e.handleCARequest(r)
	respond.WriteAnswer(w, s, r.URL.Query(), err)
}

func (e CAEndpoints) handleCARequest(r *http.Request) (standing.CAStatus, error) {
	none, q := standing.CAStatus{}, r.URL.Query()
	if err := respond.CheckParameters(q, "ca", "output", "all", "action", "force"); err != nil {
		return none, err
	}
	verb := verbRotate
	switch r.Method {
	case http.MethodGet:
		verb = "get"
	case http.MethodPost:
	default:
		return none, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "ca"}, r.Method)
	}
	reporter, err := e.authorizeUser(r, authorizer.AttributesRecord{Verb: verb, Resource: "hubsettings", Name: v1alpha1.HubSettingsName})
	if err != nil {
		return none, err
	}
	if r.Method == http.MethodPost {
		if err := reporter.changeAuthorities(r, q.Get("action"), q.Get("force") == "true"); err != nil {
			return none, err
		}
	}
	return reporter.Status(time.Now(), true), nil
}

// authorizeUser returns the reporter, if the user has the right on Atoll's objects.
func (e CAEndpoints) authorizeUser(r *http.Request, what authorizer.AttributesRecord) (*CAReporter, error) {
	u, known := request.UserFrom(r.Context())
	if !known {
		return nil, apierrors.NewUnauthorized("the request has no user")
	}
	reporter, ready := e.Reporter()
	if !ready {
		return nil, respond.StillStarting("its tables are being read")
	}
	what.User, what.ResourceRequest = u, true
	what.APIGroup, what.APIVersion = v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version
	decision, why, err := e.Authorizer().Authorize(r.Context(), what)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if decision != authorizer.DecisionAllow {
		return nil, apierrors.NewForbidden(schema.GroupResource{Group: what.APIGroup, Resource: what.Resource}, what.Name, fmt.Errorf("user %q may not %s it; %s", u.GetName(), what.Verb, why))
	}
	return reporter, nil
}

// changeAuthorities begins a rotation of the hub's CAs, or finishes it.
func (r *CAReporter) changeAuthorities(req *http.Request, action string, force bool) error {
	var err error
	switch action {
	case standing.ActionRotate:
		_, err = r.Rotation.RotateAuthorities(req.Context())
	case standing.ActionFinish:
		err = r.finishRotation(req, force)
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("the parameter action is %q; it is %s or %s", action, standing.ActionRotate, standing.ActionFinish))
	}
	if err != nil {
		return apierrors.NewConflict(schema.GroupResource{Resource: "ca"}, action, err)
	}
	return nil
}

// finishRotation ends the trust in the former CAs. Without force it refuses while that would cut
// off an agent or this user.
func (r *CAReporter) finishRotation(req *http.Request, force bool) error {
	if s := r.Status(time.Now(), true); s.RotatingSince != nil && !force {
		switch {
		case !r.IsComplete():
			return errors.New("another hub has not sent the list of its agents yet; try again in a few seconds, or check which hub does not answer")
		case r.Rotation.UsesRetiringCertificate(req):
			return errors.New("you come by a client certificate of the former CA, which ends with this: take the hub's new DIR/hub.kubeconfig, or another login, and finish by that. With --force you are cut off")
		case s.Agents.Former > 0:
			return fmt.Errorf("%d agents that are in touch are not known to have certificates of the new CA. They get them within minutes, those that check in at their next check-in: see atoll ca status. With --force those that have none come back by their key", s.Agents.Former)
		}
	}
	_, err := r.Rotation.FinishRotation(req.Context())
	return err
}

// ServeAgentCertificates answers with the ends of agents' certificates, and their transports.
func (e CAEndpoints) ServeAgentCertificates(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		respond.WriteError(w, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "certificates"}, r.Method))
		return
	}
	reporter, err := e.authorizeUser(r, authorizer.AttributesRecord{Verb: "list", Resource: "clusters"})
	if err != nil {
		respond.WriteError(w, err)
		return
	}
	respond.WriteJSON(w, http.StatusOK, reporter.listAgentCertificates())
}
