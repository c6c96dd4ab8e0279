//! The header, which is written by hand, declares exactly the functions, structs and constants of the code.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use syn::{Expr, ExprLit, Fields, FnArg, GenericArgument, Item, Lit, PathArguments, ReturnType, Type};

/// Name -> declaration, in one form for both sides.
pub(crate) type Declarations = BTreeMap<String, String>;

#[test]
fn the_header_declares_what_the_code_has() {
    let header = strip_comments(&fs::read_to_string("include/spinney.h").unwrap());
    assert_same("functions", &functions_of_header(&header), &functions_of_code());
    assert_same("structs", &structs_of_header(&header), &structs_of_code());
    assert_same("constants", &constants_of_header(&header), &constants_of_code());
}

fn assert_same(what: &str, header: &Declarations, code: &Declarations) {
    assert!(code.len() > 5, "{what}: {code:?}");
    for name in header.keys().chain(code.keys()) {
        assert_eq!(header.get(name), code.get(name), "{what}: {name}: header, then code");
    }
}

// The header.

pub(crate) fn strip_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let mut bare = parts.next().unwrap().to_owned();
    for part in parts {
        bare.push_str(part.split_once("*/").expect("a comment ends").1);
    }
    bare
}

/// The statements of the header, without lines of the preprocessor.
fn statements(header: &str) -> Vec<String> {
    let lines = header.lines().filter(|line| !line.starts_with('#') && !line.starts_with("extern \"C\""));
    let text = lines.collect::<Vec<_>>().join(" ");
    let (mut found, mut depth, mut now) = (Vec::new(), 0u32, String::new());
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => {
                found.push(now.split_whitespace().collect::<Vec<_>>().join(" "));
                now.clear();
                continue;
            }
            _ => {}
        }
        now.push(c);
    }
    found
}

/// `const char *path` -> `const char *`.
fn type_of_parameter(parameter: &str) -> String {
    let parameter = parameter.trim();
    let name = parameter.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    parameter[..name].trim().to_owned()
}

pub(crate) fn functions_of_header(header: &str) -> Declarations {
    let mut found = Declarations::new();
    for statement in statements(header).iter().filter(|statement| !statement.starts_with("typedef")) {
        let Some((head, rest)) = statement.split_once('(') else { continue };
        let name = head.rsplit([' ', '*']).next().unwrap().to_owned();
        let result = head.strip_suffix(&name).unwrap().trim();
        let parameters = rest.strip_suffix(')').unwrap();
        let types: Vec<String> = match parameters {
            "void" => Vec::new(),
            parameters => parameters.split(',').map(type_of_parameter).collect(),
        };
        found.insert(name, format!("{result} ({})", types.join(", ")));
    }
    found
}

pub(crate) fn structs_of_header(header: &str) -> Declarations {
    let mut found = Declarations::new();
    for statement in statements(header) {
        let Some((_, rest)) = statement.split_once("typedef struct ") else { continue };
        let Some((name, body)) = rest.split_once('{') else { continue };
        let body = body.rsplit_once('}').unwrap().0;
        let mut fields = Vec::new();
        for field in body.split(';').map(str::trim).filter(|field| !field.is_empty()) {
            if let Some((_, rest)) = field.split_once("(*") {
                fields.push(format!("{}: function", rest.split_once(')').unwrap().0));
                continue;
            }
            let (field, array) = field.split_once('[').map_or((field, None), |(field, rest)| (field, Some(rest)));
            let kind = type_of_parameter(field);
            let name = field.strip_prefix(&*kind).unwrap().trim();
            let array = array.map(|rest| format!("[{rest}")).unwrap_or_default();
            fields.push(format!("{name}: {kind}{array}"));
        }
        found.insert(name.trim().to_owned(), fields.join("; "));
    }
    found
}

pub(crate) fn constants_of_header(header: &str) -> Declarations {
    let lines = header.lines().filter_map(|line| line.strip_prefix("#define SPINNEY_"));
    let mut found = Declarations::new();
    for line in lines.filter(|line| line.contains(' ')) {
        let (name, value) = line.split_once(' ').unwrap();
        found.insert(format!("SPINNEY_{name}"), value.trim().trim_end_matches('u').to_owned());
    }
    found
}

// The code.

fn items() -> Vec<Item> {
    let mut found = Vec::new();
    for entry in fs::read_dir("src").unwrap() {
        let path = entry.unwrap().path();
        found.extend(syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap().items);
    }
    found
}

fn functions_of_code() -> Declarations {
    let mut found = Declarations::new();
    for item in items() {
        let Item::Fn(function) = item else { continue };
        let name = function.sig.ident.to_string();
        if function.sig.abi.is_none() || !name.starts_with("spinney_") {
            continue;
        }
        let has_name = function.attrs.iter().any(|attribute| attribute.path().is_ident("unsafe"));
        assert!(has_name, "{name} is not exported: #[unsafe(no_mangle)]");
        let types = function.sig.inputs.iter().map(|argument| match argument {
            FnArg::Typed(argument) => c_type(&argument.ty),
            FnArg::Receiver(_) => panic!("{name}: a receiver"),
        });
        let result = match &function.sig.output {
            ReturnType::Type(_, kind) => c_type(kind),
            ReturnType::Default => "void".to_owned(),
        };
        let types = types.collect::<Vec<_>>().join(", ");
        found.insert(name, format!("{result} ({types})"));
    }
    found
}

fn structs_of_code() -> Declarations {
    let mut found = Declarations::new();
    for item in items() {
        let Item::Struct(one) = item else { continue };
        let (name, Fields::Named(fields)) = (one.ident.to_string(), &one.fields) else { continue };
        if !name.starts_with("Spinney") {
            continue;
        }
        let is_c = one.attrs.iter().any(|attribute| attribute.path().is_ident("repr"));
        assert!(is_c, "{name} is not #[repr(C)]");
        let fields = fields.named.iter().map(|field| {
            let name = field.ident.as_ref().unwrap().to_string();
            format!("{}: {}", name.trim_start_matches("r#"), c_type(&field.ty))
        });
        found.insert(snake(&name), fields.collect::<Vec<_>>().join("; "));
    }
    found
}

fn constants_of_code() -> Declarations {
    let mut found = Declarations::new();
    for item in items() {
        let Item::Const(one) = item else { continue };
        if let Expr::Lit(ExprLit { lit: Lit::Int(value), .. }) = &*one.expr
            && one.ident.to_string().starts_with("SPINNEY_")
        {
            found.insert(one.ident.to_string(), value.base10_digits().to_owned());
        }
    }
    found
}

/// The type of C that a type of Rust stands for.
fn c_type(kind: &Type) -> String {
    match kind {
        Type::Ptr(pointer) => {
            let inner = c_type(&pointer.elem);
            let is_pointer = inner.ends_with('*');
            match (pointer.const_token.is_some(), is_pointer) {
                (true, false) => format!("const {inner} *"),
                (true, true) => format!("{inner}const *"),
                (false, false) => format!("{inner} *"),
                (false, true) => format!("{inner}*"),
            }
        }
        Type::Array(array) => {
            let Expr::Lit(ExprLit { lit: Lit::Int(count), .. }) = &array.len else { panic!("the length of an array") };
            format!("{}[{}]", c_type(&array.elem), count.base10_digits())
        }
        Type::Path(path) => {
            let last = path.path.segments.last().unwrap();
            match &*last.ident.to_string() {
                "c_int" => "int".to_owned(),
                "c_char" => "char".to_owned(),
                "c_void" => "void".to_owned(),
                "usize" => "size_t".to_owned(),
                "u8" => "uint8_t".to_owned(),
                "u32" => "uint32_t".to_owned(),
                "u64" => "uint64_t".to_owned(),
                "i64" => "int64_t".to_owned(),
                "Option" => {
                    let PathArguments::AngleBracketed(arguments) = &last.arguments else { panic!("an option") };
                    let GenericArgument::Type(Type::BareFn(_)) = &arguments.args[0] else { panic!("a function") };
                    "function".to_owned()
                }
                name if name.starts_with("Spinney") => snake(name),
                name => panic!("a type that C does not have: {name}"),
            }
        }
        other => panic!("a type that C does not have: {other:?}"),
    }
}

/// `SpinneyOpenOptions` -> `spinney_open_options`.
fn snake(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(c.to_lowercase());
    }
    text
}

#[test]
fn the_manual_names_every_function() {
    let manual = fs::read_to_string("spinney.3").unwrap();
    for name in functions_of_code().keys() {
        assert!(manual.contains(&format!(".Fn {name}")), "{name}");
    }
    assert!(Path::new("spinney.map").exists());
}
