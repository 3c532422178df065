package spec

import "strconv"

// EvaluationUser returns the user of evaluations. It is dockerUser (the spec's docker.user), else huid:hgid, else
// the host's uid:gid. If only one of huid and hgid is set, the other is the host's. If the host has no uids (-1),
// it is "", the image's own user.
func EvaluationUser(dockerUser, huid, hgid string, uid, gid int) string {
	if dockerUser != "" {
		return dockerUser
	}
	if huid == "" && uid >= 0 {
		huid = strconv.Itoa(uid)
	}
	if hgid == "" && gid >= 0 {
		hgid = strconv.Itoa(gid)
	}
	if huid == "" || hgid == "" {
		return huid
	}
	return huid + ":" + hgid
}
