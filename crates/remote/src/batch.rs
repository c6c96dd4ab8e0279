//! Packs several nodes into one message: most of the cost of a small file is the way to the server and back. `client`
//! and `serve` call it.

use vfs::file_system::{Answer, Attr, Follow, KnownNode, NodeId, WholeNode};
use vfs::{Error, FileSystem};

use crate::wire::{DATA_BYTES_MAX, Named, Owner, Refusal, Reply, Request, Whole};

/// Nodes of a message.
pub(crate) const NODES_MAX: usize = 64;
/// Most bytes of names, targets and attributes of a message, well below the limit of a header.
const FIELDS_BYTES_MAX: usize = 64 << 10;
/// Bytes of a node's other fields, at most.
const NODE_BYTES_MAX: usize = 256;

/// A node that is to be made, and its name.
type New<'a> = (&'a [u8], WholeNode<'a>);

/// A node as it is sent; its contents follow.
pub(crate) fn whole<'a>(node: &WholeNode<'a>) -> Whole<'a> {
    Whole {
        kind: node.kind,
        permissions: node.permissions,
        owner: Owner { uid: node.uid, gid: node.gid },
        times: [node.atime, node.mtime, node.ctime, node.btime],
        rdev: node.rdev,
        target: node.target,
        xattrs: node.xattrs.to_vec(),
    }
}

/// Cuts into parts of as many as fit a message, by the bytes that each takes in its header and behind it.
pub(crate) fn parts<T>(all: &[T], sizes: impl Fn(&T) -> (usize, usize)) -> Vec<&[T]> {
    let (mut parts, mut rest) = (Vec::new(), all);
    while !rest.is_empty() {
        let (mut count, mut fields, mut bytes) = (0_usize, 0_usize, 0_usize);
        for one in rest.iter().take(NODES_MAX) {
            let (more_fields, more_bytes) = sizes(one);
            fields = fields.saturating_add(more_fields);
            bytes = bytes.saturating_add(more_bytes);
            if count > 0 && (fields > FIELDS_BYTES_MAX || bytes > DATA_BYTES_MAX) {
                break;
            }
            count = count.saturating_add(1);
        }
        let (now, later) = rest.split_at(count);
        parts.push(now);
        rest = later;
    }
    parts
}

/// Bytes of a node in a message.
pub(crate) fn sizes((name, node): &New<'_>) -> (usize, usize) {
    let xattrs = node.xattrs.iter().map(|(name, value)| name.len().saturating_add(value.len()).saturating_add(8));
    let texts = name.len().saturating_add(node.target.len()).saturating_add(NODE_BYTES_MAX);
    (xattrs.fold(texts, usize::saturating_add), node.data.len())
}

/// The request for these nodes, and their contents.
pub(crate) fn request<'a>(parent: NodeId, nodes: &'a [New<'a>]) -> (Request<'a>, Vec<u8>) {
    let named = nodes.iter().map(|(name, node)| Named {
        name,
        node: whole(node),
        len: u32::try_from(node.data.len()).unwrap_or(u32::MAX),
    });
    let data = nodes.iter().map(|(_, node)| node.data).collect::<Vec<_>>().concat();
    (Request::CreateMany { parent, nodes: named.collect() }, data)
}

/// The results for each of `count` nodes.
pub(crate) fn made(count: usize, answer: Answer<Reply>, failure: fn(Reply) -> Error) -> Vec<Answer<Attr>> {
    match answer {
        Ok(Reply::Many(made)) if made.len() == count => {
            made.into_iter().map(|made| made.map_err(Error::from)).collect()
        }
        answer => each(count, answer.map_or_else(|error| error, failure)),
    }
}

/// The properties of each of `count` nodes; their contents are concatenated in `data`.
pub(crate) fn known(
    count: usize,
    answer: Answer<(Reply, Vec<u8>)>,
    failure: fn(Reply) -> Error,
) -> Vec<Answer<KnownNode>> {
    match answer {
        Ok((Reply::KnownMany(nodes), data)) if nodes.len() == count => {
            let mut rest = data.as_slice();
            let mut own = |len: u32| {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let (own, others) = rest.split_at_checked(len).ok_or_else(|| failure(Reply::Done))?;
                rest = others;
                Ok::<_, Error>(own.to_vec())
            };
            let one = |told: Result<(KnownNode, Option<u32>), Refusal>| {
                let (node, len) = told?;
                Ok(KnownNode { data: len.map(&mut own).transpose()?, ..node })
            };
            nodes.into_iter().map(one).collect()
        }
        answer => each(count, answer.map_or_else(|error| error, |(reply, _)| failure(reply))),
    }
}

/// The same failure of each.
fn each<T>(count: usize, error: Error) -> Vec<Answer<T>> {
    let refusal = Refusal::from(error);
    (0..count).map(|_| Err(refusal.clone().into())).collect()
}

/// For the server: all properties of the nodes at these paths. Those that do not fit the message are missing.
pub(crate) fn look(
    fs: &dyn FileSystem,
    paths: &[&[u8]],
    (follow, data_bytes_max): (Follow, usize),
    data: &mut Vec<u8>,
) -> Vec<Result<(KnownNode, Option<u32>), Refusal>> {
    let mut fields = 0_usize;
    let mut look = |path: &&[u8]| {
        let room = DATA_BYTES_MAX.saturating_sub(data.len()).min(data_bytes_max);
        let mut node = fs.known_at(path, follow, room)?;
        let own = node.data.take();
        if let Some(own) = &own {
            data.extend_from_slice(own);
        }
        let pairs = node.xattrs.iter().flatten();
        fields = pairs.fold(fields, |sum, (name, value)| sum.saturating_add(name.len()).saturating_add(value.len()));
        fields = fields.saturating_add(node.target.as_ref().map_or(0, Vec::len)).saturating_add(NODE_BYTES_MAX);
        if fields > FIELDS_BYTES_MAX {
            (node.xattrs, node.target) = (None, None);
        }
        let len = own.map(|own| u32::try_from(own.len()).unwrap_or(u32::MAX));
        Ok::<_, Error>((node, len))
    };
    paths.iter().map(|path| look(path).map_err(Refusal::from)).collect()
}
