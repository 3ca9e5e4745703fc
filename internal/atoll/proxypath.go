package atoll

import "atoll.dev/atoll/api/v1alpha1"

// ClusterProxyPrefix is what the paths of all clusters begin with, where the hub serves their APIs.
var ClusterProxyPrefix = "/apis/" + v1alpha1.GroupVersion.String() + "/clusters/"

// ClusterProxyPath is that of one cluster, without a slash at its end.
func ClusterProxyPath(cluster string) string { return ClusterProxyPrefix + cluster + "/proxy" }

// FleetViewHost is the host name under which a hub requests from an agent, in its own name, what
// runs of what is placed. Requests of people have the cluster's UID there, whatever host they name.
const FleetViewHost = "live.atoll.dev"
